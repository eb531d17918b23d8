#include <algorithm>

#include "ops/pieces/plan_choices.hpp"
#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {
namespace delta_segments_test {

// Sequences of a batch, or packed ones.
Shape with_tokens(std::int64_t batch, std::int64_t tokens, Shape rest) {
  rest.insert(rest.begin(), tokens);
  if (batch > 0) rest.insert(rest.begin(), batch);
  return rest;
}

std::vector<Tensor> results_of(std::int64_t batch, std::int64_t tokens, const std::optional<Tensor>& fences,
                               Target target, const char* plan) {
  const DType type = target == Target::emulated_sm90() ? bf16 : f32;
  const std::int64_t sequences = fences ? fences->size(0) - 1 : batch;
  const auto noise = [&](std::int64_t heads, std::int64_t d, std::uint64_t seed) {
    return Tensor::random_normal(with_tokens(batch, tokens, {heads, d}), type, seed, 0, 0.3);
  };
  const auto shares = [&](DType of, double low, double high, std::uint64_t seed) {
    return Tensor::random_uniform(with_tokens(batch, tokens, {2}), of, seed, low, high);
  };
  const Tensor q = noise(1, 16, 1), k = noise(1, 16, 2), v = noise(2, 24, 3), dout = noise(2, 24, 7),
               beta = shares(type, 0, 1, 5), g = shares(f32, -0.02, 0, 4),
               state = Tensor::random_normal({sequences, 2, 16, 24}, f32, 6, 0, 0.3),
               dend = Tensor::random_normal({sequences, 2, 16, 24}, f32, 8, 0, 0.3);
  GatedDeltaRule options{.g = g, .initial_state = state, .target = target};
  if (fences) options.cu_seqlens = *fences;
  choose_candidates(plan);
  const GatedDeltaRuleGradients gradients = gated_delta_rule_backward(dout, q, k, v, beta, options, dend);
  options.output_final_state = true;
  const GatedDeltaRuleResult result = gated_delta_rule(q, k, v, beta, options);
  choose_candidates("");
  return {result.out,   result.final_state, gradients.dq, gradients.dk,
          gradients.dv, gradients.dbeta,    gradients.dg, gradients.dinitial_state};
}

// Blocks find the chunks of segments that are no sequences of their own: the last ones are shorter, or empty.
TEST(DeltaRule, HasSegmentsOfSequencesOfAnyLength) {
  struct Case {
    std::int64_t batch, tokens;
    std::optional<Tensor> fences;
    int segments;
  };
  const Case cases[] = {{2, 200, {}, 1}, {0, 330, Tensor::from<std::int32_t>({0, 70, 70, 330}), 1}};
  for (const Target target : {Target::interpreter(), Target::emulated_sm90()}) {
    if (target == Target::emulated_sm90() && test_targets().size() == 1) continue;
    for (const Case& own : cases) {
      const auto results = [&](int choice) {
        const std::string plan = fmt::format(
            "gated_delta_rule.0={0},gated_delta_rule.1=0,gated_delta_rule_backward.0={0}", choice);
        return results_of(own.batch, own.tokens, own.fences, target, plan.c_str());
      };
      const std::vector<Tensor> expected = results(0), by_segments = results(own.segments);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_LT(error_of(by_segments[i], expected[i]).norm, target == Target::interpreter() ? 1e-5 : 2e-2)
            << target.name() << ", " << own.tokens << " tokens, result " << i;
    }
  }
}

// Those of decays of features have the maps of the rule's, which are joined as its states are.
std::vector<Tensor> results_of_kda(std::int64_t batch, std::int64_t tokens,
                                   const std::optional<Tensor>& fences, Target target, const char* plan) {
  const DType type = target == Target::emulated_sm90() ? bf16 : f32;
  const std::int64_t sequences = fences ? fences->size(0) - 1 : batch;
  const auto noise = [&](std::int64_t heads, std::int64_t d, std::uint64_t seed) {
    return Tensor::random_normal(with_tokens(batch, tokens, {heads, d}), type, seed, 0, 0.3);
  };
  const Tensor q = noise(1, 16, 1), k = noise(1, 16, 2), v = noise(2, 24, 3), dout = noise(2, 24, 7),
               beta = Tensor::random_uniform(with_tokens(batch, tokens, {2}), type, 5, 0, 1),
               g = Tensor::random_uniform(with_tokens(batch, tokens, {2, 16}), f32, 4, -0.02, 0),
               state = Tensor::random_normal({sequences, 2, 16, 24}, f32, 6, 0, 0.3),
               dend = Tensor::random_normal({sequences, 2, 16, 24}, f32, 8, 0, 0.3);
  Kda options{.initial_state = state, .target = target};
  if (fences) options.cu_seqlens = *fences;
  choose_candidates(plan);
  const KdaGradients gradients = kda_backward(dout, q, k, v, g, beta, options, dend);
  options.output_final_state = true;
  const KdaResult result = kda(q, k, v, g, beta, options);
  choose_candidates("");
  return {result.out,   result.final_state, gradients.dq,    gradients.dk,
          gradients.dv, gradients.dg,       gradients.dbeta, gradients.dinitial_state};
}
TEST(DeltaRule, HasSegmentsOfDecaysOfFeatures) {
  const std::optional<Tensor> fences = Tensor::from<std::int32_t>({0, 70, 70, 330});
  for (const Target target : {Target::interpreter(), Target::emulated_sm90()}) {
    if (target == Target::emulated_sm90() && test_targets().size() == 1) continue;
    for (const auto& [batch, tokens] : {std::pair(2, 200), {0, 330}}) {
      const auto results = [&](const char* plan) {
        return results_of_kda(batch, tokens, batch > 0 ? std::optional<Tensor>() : fences, target, plan);
      };
      const std::vector<Tensor> expected = results("kda.0=0,kda_backward.0=0"),
                                by_segments = results("kda.0=1,kda_backward.0=1");
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_LT(error_of(by_segments[i], expected[i]).norm, target == Target::interpreter() ? 1e-5 : 2e-2)
            << target.name() << ", " << tokens << " tokens, result " << i;
    }
  }
}

// One head has segments, and not several, whose blocks would lose more to each other than chains take.
TEST(DeltaRule, PlansSegmentsOfDecaysOfFeatures) {
  const auto has_segments = [](const char* op, std::int64_t heads) {
    Tensors inputs{{"beta", Tensor::empty({1, 16384, heads}, bf16)},
                   {"g", Tensor::empty({1, 16384, heads, 128}, f32)}};
    for (const char* name : {"q", "k", "v"})
      inputs.emplace(name, Tensor::empty({1, 16384, heads, 128}, bf16));
    if (std::string(op) == "kda_backward")
      inputs.emplace("dout", Tensor::empty({1, 16384, heads, 128}, bf16));
    const auto kernels = kernels_by_name(find_schema(op), inputs, {}, Target::cuda());
    return std::any_of(kernels.begin(), kernels.end(),
                       [](auto& own) { return own.name().find("_map_divided") != std::string::npos; });
  };
  for (const char* op : {"kda", "kda_backward"}) {
    EXPECT_TRUE(has_segments(op, 1)) << op;
    for (const std::int64_t heads : {2, 8, 16}) EXPECT_FALSE(has_segments(op, heads)) << op << heads;
  }
}

// Few heads have segments whatever the length; those that divide a sequence are sequences of their own.
TEST(DeltaRule, PlansSegmentsOfOddAndPackedSequences) {
  const auto has = [](const char* op, std::int64_t batch, std::int64_t tokens, std::int64_t sequences,
                      const char* words) {
    Tensors inputs;
    for (const char* name : {"dout", "q", "k", "v"}) {
      if (std::string(op) == "gated_delta_rule" && std::string(name) == "dout") continue;
      inputs.emplace(name, Tensor::empty(with_tokens(batch, tokens, {1, 128}), bf16));
    }
    inputs.emplace("beta", Tensor::empty(with_tokens(batch, tokens, {1}), bf16));
    if (sequences > 0) {
      const Tensor& fences = inputs.emplace("cu_seqlens", Tensor::empty({sequences + 1}, i32)).first->second;
      for (std::int64_t i = 0; i <= sequences; ++i)
        fences.data_as<std::int32_t>()[i] = static_cast<std::int32_t>(i * tokens / sequences);
    }
    const auto kernels = kernels_by_name(find_schema(op), inputs, {}, Target::cuda());
    return std::any_of(kernels.begin(), kernels.end(),
                       [&](auto& own) { return own.name().find(words) != std::string::npos; });
  };
  for (const char* op : {"gated_delta_rule", "gated_delta_rule_backward"}) {
    EXPECT_TRUE(has(op, 4, 4097, 0, "_divided")) << op;
    EXPECT_TRUE(has(op, 0, 16384, 1, "_divided")) << op;
    EXPECT_TRUE(has(op, 4, 4096, 0, "segment")) << op;
    EXPECT_FALSE(has(op, 4, 4096, 0, "_divided")) << op;
    EXPECT_FALSE(has(op, 0, 16384, 256, "_divided")) << op;
  }
}

}  // namespace delta_segments_test
}  // namespace tegula::ops

#include "ops/pieces/plan_choices.hpp"
#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {
namespace short_rule_test {

Tensor noise(const Shape& shape, std::uint64_t seed) {
  return Tensor::random_normal(shape, bf16, seed, 0, 0.3);
}

// Three sequences one behind the other.
Tensor packed(const Tensor& t) {
  Shape shape = t.shape();
  shape.erase(shape.begin()), shape[0] *= 3;
  return t.reshape(shape);
}

std::vector<Tensor> results_of(std::int64_t n, Target target) {
  const Tensor q = noise({3, n, 1, 40}, 1), k = noise({3, n, 1, 40}, 2), v = noise({3, n, 2, 136}, 3),
               beta = Tensor::random_uniform({3, n, 2}, bf16, 4, 0, 1),
               g = Tensor::random_uniform({3, n, 2}, f32, 5, -0.4, 0),
               gates = Tensor::random_uniform({3, n, 2, 40}, f32, 6, -5, 0);
  const auto last = static_cast<std::int32_t>(3 * n);
  const Tensor fences = Tensor::from<std::int32_t>({0, 0, last / 3, last - 1, last});
  return {gated_delta_rule(q, k, v, beta, {.target = target}).out,
          gated_delta_rule(q, k, v, beta, {.g = g, .qk_l2norm = true, .target = target}).out,
          gated_delta_rule(packed(q), packed(k), packed(v), packed(beta),
                           {.g = packed(g), .cu_seqlens = fences, .max_seqlen = 2 * n, .target = target})
              .out,
          kda(q, k, v, gates, beta, {.qk_l2norm = true, .target = target}).out,
          kda(packed(q), packed(k), packed(v), packed(gates), packed(beta),
              {.cu_seqlens = fences, .max_seqlen = 2 * n, .target = target})
              .out};
}

// Sequences of one tile without states form no state: whatever their length, they are those of chunks.
TEST(DeltaRule, OfShortSequencesIsThatOfChunks) {
  if (test_targets().size() == 1) return;
  for (const std::int64_t tokens : {1, 9, 32}) {
    const std::vector<Tensor> expected = results_of(tokens, Target::interpreter());
    choose_candidates(tokens == 9 ? "gated_delta_rule.0=1,kda.0=1" : "");
    const std::vector<Tensor> own = results_of(tokens, Target::emulated_sm90());
    choose_candidates("");
    for (std::size_t i = 0; i < own.size(); ++i)
      EXPECT_LT(error_of(own[i], expected[i]).norm, 1e-2) << tokens << " tokens, result " << i;
  }
}

// So are their gradients, of heads that share keys, of packed sequences and of norms.
std::vector<Tensor> gradients_of(std::int64_t n, Target target) {
  const Tensor q = noise({3, n, 1, 40}, 1), k = noise({3, n, 1, 40}, 2), v = noise({3, n, 2, 136}, 3),
               beta = Tensor::random_uniform({3, n, 2}, bf16, 4, 0, 1), dout = noise({3, n, 2, 136}, 7),
               g = Tensor::random_uniform({3, n, 2}, f32, 5, -0.4, 0), keys = noise({3, n, 2, 40}, 8);
  const auto last = static_cast<std::int32_t>(3 * n);
  const Tensor fences = Tensor::from<std::int32_t>({0, 0, last / 3, last - 1, last});
  std::vector<Tensor> results;
  const auto add = [&](const GatedDeltaRuleGradients& own) {
    results.insert(results.end(), {own.dq, own.dk, own.dv, own.dbeta});
    if (own.dg.nelements() > 0) results.push_back(own.dg);
  };
  add(gated_delta_rule_backward(dout, q, k, v, beta, {.target = target}));
  add(gated_delta_rule_backward(dout, keys, keys, v, beta, {.g = g, .target = target}));
  add(gated_delta_rule_backward(dout, q, k, v, beta, {.g = g, .qk_l2norm = true, .target = target}));
  add(gated_delta_rule_backward(
      packed(dout), packed(q), packed(k), packed(v), packed(beta),
      {.g = packed(g), .cu_seqlens = fences, .max_seqlen = 2 * n, .target = target}));
  return results;
}
TEST(DeltaRule, HasGradientsOfShortSequences) {
  if (test_targets().size() == 1) return;
  for (const std::int64_t tokens : {9, 32}) {
    const std::vector<Tensor> expected = gradients_of(tokens, Target::interpreter());
    choose_candidates(tokens == 9 ? "gated_delta_rule_backward.0=1" : "");
    const std::vector<Tensor> own = gradients_of(tokens, Target::emulated_sm90());
    choose_candidates("");
    ASSERT_EQ(own.size(), expected.size());
    for (std::size_t i = 0; i < own.size(); ++i)
      EXPECT_LT(error_of(own[i], expected[i]).norm, 2e-2) << tokens << " tokens, result " << i;
  }
}

// Many of them have blocks of few threads, so that a processor has the more.
TEST(DeltaRule, PlansThreadsOfShortSequences) {
  const auto name = [](std::int64_t batch) {
    Tensors inputs{{"beta", Tensor::empty({batch, 9, 2}, bf16)}};
    for (const char* own : {"q", "k", "v"}) inputs.emplace(own, Tensor::empty({batch, 9, 2, 64}, bf16));
    return kernels_by_name(find_schema("gated_delta_rule"), inputs, {}, Target::cuda())[0].name();
  };
  EXPECT_NE(name(2).find("_t128"), std::string::npos) << name(2);
  EXPECT_NE(name(1000).find("_t64"), std::string::npos) << name(1000);
}

// States before or after them, more tokens and f32 have chunks, or go token by token.
TEST(DeltaRule, PlansShortSequencesWithoutStates) {
  const auto is_short = [](const char* op, std::int64_t tokens, DType type, bool last) {
    Tensors inputs{{"beta", Tensor::empty({2, tokens, 2}, type)}, {"g", Tensor::empty({2, tokens, 2}, f32)}};
    for (const char* name : {"q", "k", "v"}) inputs.emplace(name, Tensor::empty({2, tokens, 2, 64}, type));
    if (std::string(op) == "kda") inputs.insert_or_assign("g", Tensor::empty({2, tokens, 2, 64}, f32));
    OptionValues options;
    if (last) options.emplace("output_final_state", true);
    if (std::string(op).ends_with("_backward")) {
      inputs.emplace("dout", Tensor::empty({2, tokens, 2, 64}, type));
      if (last) inputs.emplace("dfinal_state", Tensor::empty({2, 2, 64, 64}, f32));
      options.clear();
    }
    return kernels_by_name(find_schema(op), inputs, options, Target::cuda())[0].name().starts_with("short_");
  };
  for (const char* op : {"gated_delta_rule", "kda", "gated_delta_rule_backward"}) {
    for (const std::int64_t tokens : {1, 32}) EXPECT_TRUE(is_short(op, tokens, bf16, false)) << op << tokens;
    EXPECT_FALSE(is_short(op, 32, bf16, true)) << op;
    EXPECT_FALSE(is_short(op, 32, f32, false)) << op;
    EXPECT_FALSE(is_short(op, 33, bf16, false)) << op;
  }
}

}  // namespace short_rule_test
}  // namespace tegula::ops

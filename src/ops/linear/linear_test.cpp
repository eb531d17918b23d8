#include <cmath>

#include "ops/pieces/plan_choices.hpp"
#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"
#include "tegula/explain.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {
namespace linear_test {

Tensor noise(const Shape& shape, std::uint64_t seed, DType type = f32, double deviation = 0.3) {
  return Tensor::random_normal(shape, type, seed, 0, deviation);
}
Tensor tokens(const Tensor& x, std::int64_t first, std::int64_t last) { return x.slice(1, first, last); }

// Two calls, the second from the state of the first, are one call; so are steps of one token.
TEST(Recurrences, GoOnFromTheirStates) {
  const Tensor q = noise({1, 40, 1, 16}, 1), k = noise({1, 40, 1, 16}, 2), v = noise({1, 40, 2, 16}, 3),
               g = Tensor::random_uniform({1, 40, 2}, f32, 4, -0.2, 0),
               beta = Tensor::random_uniform({1, 40, 2}, f32, 5, 0, 1);
  const Target target = Target::interpreter();
  const auto call = [&](std::int64_t first, std::int64_t last, std::optional<TensorRef> state) {
    return gated_delta_rule(
        tokens(q, first, last), tokens(k, first, last), tokens(v, first, last), tokens(beta, first, last),
        {.g = tokens(g, first, last), .initial_state = state, .output_final_state = true, .target = target});
  };
  const GatedDeltaRuleResult whole = call(0, 40, {}), most = call(0, 39, {}),
                             last = call(39, 40, most.final_state);
  EXPECT_LT(error_of(last.final_state, whole.final_state).largest, 1e-5);
  EXPECT_LT(error_of(last.out, tokens(whole.out, 39, 40)).largest, 1e-5);
}

struct DeltaInputs {
  Tensor q, k, v, beta, dout, g, state, dend;
};
DeltaInputs delta_inputs(DType type) {
  return {noise({2, 256, 1, 16}, 1, type), noise({2, 256, 1, 16}, 2, type),
          noise({2, 256, 2, 24}, 3, type), Tensor::random_uniform({2, 256, 2}, type, 5, 0, 1),
          noise({2, 256, 2, 24}, 7, type), Tensor::random_uniform({2, 256, 2}, f32, 4, -0.02, 0),
          noise({2, 2, 16, 24}, 6),        noise({2, 2, 16, 24}, 8)};
}

// A sequence in segments, as plans divide long ones of few heads on a GPU, or in stretches whose factors are
// formed beside the pass, is that of one pass.
TEST(Recurrences, OfSegmentsAndStretchesAreThoseOfOnePass) {
  const auto results = [](DType type, Target target, const char* plan) {
    const auto [q, k, v, beta, dout, g, state, dend] = delta_inputs(type);
    GatedDeltaRule options{.g = g, .initial_state = state, .target = target};
    choose_candidates(plan);
    const GatedDeltaRuleGradients gradients = gated_delta_rule_backward(dout, q, k, v, beta, options, dend);
    options.output_final_state = true;
    const GatedDeltaRuleResult result = gated_delta_rule(q, k, v, beta, options);
    choose_candidates("");
    return std::vector<Tensor>{result.out,   result.final_state, gradients.dq, gradients.dk,
                               gradients.dv, gradients.dbeta,    gradients.dg, gradients.dinitial_state};
  };
  const char* one = "gated_delta_rule.0=0,gated_delta_rule.1=0,gated_delta_rule_backward.0=0";
  const char* segments = "gated_delta_rule.0=2,gated_delta_rule_backward.0=2";
  const char* stretches = "gated_delta_rule.0=0,gated_delta_rule.1=2,gated_delta_rule_backward.0=0";
  for (const Target target : {Target::interpreter(), Target::emulated_sm90()}) {
    if (target == Target::emulated_sm90() && test_targets().size() == 1) continue;
    const DType type = target == Target::emulated_sm90() ? bf16 : f32;
    const std::vector<Tensor> expected = results(type, target, one),
                              by_segments = results(type, target, segments),
                              by_stretches = results(type, target, stretches);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LT(error_of(by_segments[i], expected[i]).norm, type == f32 ? 1e-5 : 2e-2) << target.name() << i;
      EXPECT_TRUE(equal(by_stretches[i], expected[i])) << target.name() << i;
    }
  }
}

// Gradients of shares that are 0, as tokens of padding have them, are those of very small ones.
TEST(Recurrences, HaveGradientsOfSharesThatAreZero) {
  const auto gradients = [](float least, std::int64_t tokens) {
    auto [q, k, v, beta, dout, g, state, dend] = delta_inputs(f32);
    for (std::int64_t i = 0; i < beta.nelements(); ++i)
      if (i % 3 != 0) beta.data_as<float>()[i] = least;
    const auto own = [&](const Tensor& x) { return x.slice(1, 0, tokens); };
    return gated_delta_rule_backward(own(dout), own(q), own(k), own(v), own(beta),
                                     {.g = own(g), .initial_state = state, .target = Target::interpreter()},
                                     dend);
  };
  for (const std::int64_t tokens : {1, 150}) {
    const GatedDeltaRuleGradients zero = gradients(0, tokens), small = gradients(1e-7f, tokens);
    EXPECT_GT(error_of(zero.dbeta, Tensor::zeros(zero.dbeta.shape(), f32)).largest, 0.1);
    EXPECT_LT(error_of(zero.dbeta, small.dbeta).norm, 1e-5) << tokens;
    EXPECT_LT(error_of(zero.dk, small.dk).norm, 1e-5) << tokens;
    EXPECT_LT(error_of(zero.dg, small.dg).norm, 1e-5) << tokens;
  }
}

// Scans in segments are those of one pass, too.
TEST(Recurrences, OfScansInSegmentsAreThoseOfOnePass) {
  const auto results = [](DType type, Target target, const char* plan) {
    const auto [q, k, v, beta, dout, g, state, dend] = delta_inputs(type);
    choose_candidates(plan);
    const LinearAttentionResult gated = linear_attention(
        q, k, v, {.g = g, .initial_state = state, .output_final_state = true, .target = target});
    const Tensor weights = Tensor::random_uniform({2, 256, 1, 16}, type, 10, 0.1, 1);
    const LinearAttentionResult plain =
        linear_attention(weights, weights, v, {.normalize = true, .target = target});
    const SsdResult ssd_result =
        ssd(v, Tensor::random_uniform({2, 256, 2}, f32, 9, 0, 0.2), Tensor::from<float>({-0.5, -0.1}), k, q,
            {.z = dout, .output_final_state = true, .target = target});
    choose_candidates("");
    return std::vector<Tensor>{gated.out, gated.final_state, plain.out, ssd_result.out,
                               ssd_result.final_state};
  };
  for (const Target target : {Target::interpreter(), Target::emulated_sm90()}) {
    if (target == Target::emulated_sm90() && test_targets().size() == 1) continue;
    const DType type = target == Target::emulated_sm90() ? bf16 : f32;
    const std::vector<Tensor> expected = results(type, target, "linear_attention.0=0,ssd.0=0"),
                              by_segments = results(type, target, "linear_attention.0=2,ssd.0=2");
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_LT(error_of(by_segments[i], expected[i]).norm, type == f32 ? 1e-5 : 1e-2) << target.name() << i;
  }
}

// So are gradients: states of chunks and their gradients are passed on in segments, from both ends.
TEST(Recurrences, HaveGradientsInSegments) {
  const auto results = [](DType type, Target target, const char* plan) {
    const auto [q, k, v, beta, dout, g, state, dend] = delta_inputs(type);
    choose_candidates(plan);
    const LinearAttentionGradients linear =
        linear_attention_backward(dout, q, k, v, {.g = g, .initial_state = state, .target = target}, dend);
    const SsdGradients space = ssd_backward(dout, v, Tensor::random_uniform({2, 256, 2}, f32, 9, 0, 0.2),
                                            Tensor::from<float>({-0.5, -0.1}), k, q, {.target = target});
    choose_candidates("");
    return std::vector<Tensor>{linear.dq, linear.dk, linear.dv, linear.dg, linear.dinitial_state,
                               space.dx,  space.ddt, space.dB,  space.dC};
  };
  for (const Target target : {Target::interpreter(), Target::emulated_sm90()}) {
    if (target == Target::emulated_sm90() && test_targets().size() == 1) continue;
    const DType type = target == Target::emulated_sm90() ? bf16 : f32;
    const std::vector<Tensor> expected =
                                  results(type, target, "linear_attention_backward.0=0,ssd_backward.0=0"),
                              by_segments =
                                  results(type, target, "linear_attention_backward.0=2,ssd_backward.0=2");
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_LT(error_of(by_segments[i], expected[i]).norm, type == f32 ? 1e-4 : 2e-2) << target.name() << i;
  }
}

// Gradients without gates, or with those of heads that are constants, by scans, as plans find those of many
// heads on a GPU, are those by chunks.
TEST(Recurrences, HaveGradientsThatAreScans) {
  const auto results = [](DType type, Target target, const char* plan) {
    const Tensor q = noise({2, 150, 2, 16}, 1, type), k = noise({2, 150, 2, 16}, 2, type),
                 v = noise({2, 150, 2, 24}, 3, type), dout = noise({2, 150, 2, 24}, 7, type);
    choose_candidates(plan);
    const Tensor fences = Tensor::from<std::int32_t>({0, 70, 70, 150}),
                 decays = Tensor::from<float>({-0.01f, -0.3f});
    const auto packed = [](const Tensor& x) { return x.select(0, 0); };
    std::vector<Tensor> results;
    for (const bool fades : {false, true}) {
      LinearAttention options{.g_gamma_gradient = false, .target = target};
      if (fades) options.g_gamma = decays;
      const LinearAttentionGradients all = linear_attention_backward(dout, q, k, v, options);
      options.cu_seqlens = fences;
      const LinearAttentionGradients of_packed =
          linear_attention_backward(packed(dout), packed(q), packed(k), packed(v), options);
      EXPECT_EQ(all.dg_gamma.nelements(), 0);
      for (const LinearAttentionGradients& own : {all, of_packed})
        results.insert(results.end(), {own.dq, own.dk, own.dv});
    }
    choose_candidates("");
    return results;
  };
  for (const Target target : {Target::interpreter(), Target::emulated_sm90()}) {
    if (target == Target::emulated_sm90() && test_targets().size() == 1) continue;
    const DType type = target == Target::emulated_sm90() ? bf16 : f32;
    const std::vector<Tensor> by_chunks = results(type, target, "linear_attention_backward.0=0"),
                              by_scans = results(type, target, "linear_attention_backward.0=1");
    for (std::size_t i = 0; i < by_chunks.size(); ++i)
      EXPECT_LT(error_of(by_scans[i], by_chunks[i]).norm, type == f32 ? 1e-5 : 1e-2) << target.name() << i;
  }
}

// Of one token, and of tokens with gates of their own, too: dg_gamma is left out, and the others are as with
// it.
TEST(Recurrences, LeaveOutGradientsThatAreNotWanted) {
  const Tensor decays = Tensor::from<float>({-0.01f, -0.3f});
  for (const std::int64_t tokens : {1, 70})
    for (const bool gated : {false, true}) {
      const Tensor q = noise({1, tokens, 2, 16}, 1), k = noise({1, tokens, 2, 16}, 2),
                   v = noise({1, tokens, 2, 24}, 3), dout = noise({1, tokens, 2, 24}, 4),
                   g = Tensor::random_uniform({1, tokens, 2}, f32, 5, -0.2, 0);
      LinearAttention options{.g_gamma = decays, .target = Target::interpreter()};
      if (gated) options.g = g;
      const LinearAttentionGradients whole = linear_attention_backward(dout, q, k, v, options);
      options.g_gamma_gradient = false;
      const LinearAttentionGradients part = linear_attention_backward(dout, q, k, v, options);
      EXPECT_EQ(part.dg_gamma.nelements(), 0) << tokens;
      EXPECT_TRUE(equal(part.dq, whole.dq) && equal(part.dk, whole.dk) && equal(part.dv, whole.dv)) << tokens;
    }
}

// Packed sequences share the processors, and the longest is a chain: one of 6208 tokens beside 31 of 64 has
// few blocks of work, however many sequences there are.
TEST(Recurrences, PlanGradientsOfPackedSequencesByTheirTokens) {
  const auto by_scans = [](const Shape& q, const std::vector<std::int32_t>& fences) {
    std::map<std::string, Tensor> inputs;
    for (const char* name : {"dout", "q", "k", "v"}) inputs.emplace(name, Tensor::empty(q, bf16));
    if (!fences.empty()) inputs.emplace("cu_seqlens", Tensor::from<std::int32_t>(fences));
    const auto kernels = explain("linear_attention_backward", inputs, {}, Target::cuda());
    return kernels[0].kernel.starts_with("scan_") && !kernels[0].kernel.starts_with("scan_states");
  };
  std::vector<std::int32_t> one_long{0}, even{0};
  for (int i = 0; i < 32; ++i) {
    one_long.push_back(one_long.back() + (i == 0 ? 6208 : 64));
    even.push_back(even.back() + 256);
  }
  for (const std::int64_t heads : {1, 2, 4, 8, 16, 32}) {
    const bool of_batch = by_scans({32, 256, heads, 128}, {});
    EXPECT_EQ(of_batch, heads >= 4) << heads;
    EXPECT_EQ(by_scans({8192, heads, 128}, even), of_batch) << heads;
    EXPECT_FALSE(by_scans({8192, heads, 128}, one_long)) << heads;
  }
}

// Tensors over tokens, [tokens, …].
struct OfTokens {
  Tensor q, k, v, dout, shares, gates, all_gates, widths;
  // Some of them as a batch of one sequence.
  OfTokens alone(std::int64_t first, std::int64_t end) const {
    const auto own = [&](const Tensor& x) {
      Shape shape = x.shape();
      shape[0] = end - first, shape.insert(shape.begin(), 1);
      return x.slice(0, first, end).reshape(shape);
    };
    return {own(q), own(k), own(v), own(dout), own(shares), own(gates), own(all_gates), own(widths)};
  }
};
// What has a row for each token, of all recurrent operators.
std::vector<Tensor> recurrences_of(const OfTokens& x, const std::optional<TensorRef>& fences, Target target) {
  const Tensor rates = Tensor::from<float>({-0.5, -0.1}), taps = noise({16, 4}, 9, x.q.dtype());
  const LinearAttention linear{.g = x.gates, .cu_seqlens = fences, .target = target};
  const GatedDeltaRule rule{.g = x.gates, .cu_seqlens = fences, .target = target};
  const Kda by_feature{.cu_seqlens = fences, .target = target};
  const Ssd space{.cu_seqlens = fences, .target = target};
  const CausalConv1d conv{.cu_seqlens = fences, .target = target};
  Shape of_channels = x.q.shape();
  of_channels.erase(of_channels.end() - 2);
  const Tensor channels = x.q.reshape(of_channels), dchannels = x.k.reshape(of_channels);
  const auto of_linear = linear_attention_backward(x.dout, x.q, x.k, x.v, linear);
  const auto of_rule = gated_delta_rule_backward(x.dout, x.q, x.k, x.v, x.shares, rule);
  const auto of_kda = kda_backward(x.dout, x.q, x.k, x.v, x.all_gates, x.shares, by_feature);
  const auto of_space = ssd_backward(x.dout, x.v, x.widths, rates, x.k, x.q, space);
  return {linear_attention(x.q, x.k, x.v, linear).out,
          gated_delta_rule(x.q, x.k, x.v, x.shares, rule).out,
          kda(x.q, x.k, x.v, x.all_gates, x.shares, by_feature).out,
          ssd(x.v, x.widths, rates, x.k, x.q, space).out,
          causal_conv1d(channels, taps, conv).out,
          causal_conv1d_backward(dchannels, channels, taps, conv).dx,
          of_linear.dq,
          of_linear.dk,
          of_linear.dv,
          of_linear.dg,
          of_rule.dq,
          of_rule.dk,
          of_rule.dv,
          of_rule.dbeta,
          of_rule.dg,
          of_kda.dq,
          of_kda.dk,
          of_kda.dv,
          of_kda.dbeta,
          of_kda.dg,
          of_space.dx,
          of_space.ddt,
          of_space.dB,
          of_space.dC};
}

// Chunks of packed sequences are numbered together, of sequences without tokens or with one as well.
TEST(Recurrences, OfPackedSequencesAreThoseOfEachAlone) {
  const std::vector<int> fences{0, 0, 1, 65, 65, 130, 137, 137};
  const std::int64_t n = fences.back();
  const OfTokens all{noise({n, 1, 16}, 1),
                     noise({n, 1, 16}, 2),
                     noise({n, 2, 16}, 3),
                     noise({n, 2, 16}, 4),
                     Tensor::random_uniform({n, 2}, f32, 5, 0, 1),
                     Tensor::random_uniform({n, 2}, f32, 6, -0.2, 0),
                     Tensor::random_uniform({n, 2, 16}, f32, 7, -0.2, 0),
                     Tensor::random_uniform({n, 2}, f32, 8, 0, 0.2)};
  const Target target = Target::interpreter();
  const std::vector<Tensor> packed = recurrences_of(all, Tensor::from(fences), target);
  for (std::size_t i = 0; i + 1 < fences.size(); ++i) {
    const std::int64_t first = fences[i], end = fences[i + 1];
    if (first == end) continue;
    const std::vector<Tensor> alone = recurrences_of(all.alone(first, end), {}, target);
    for (std::size_t j = 0; j < packed.size(); ++j) {
      const Tensor own = packed[j].slice(0, first, end);
      EXPECT_LT(error_of(own, alone[j].reshape(own.shape())).norm, 1e-5)
          << "sequence " << i << " result " << j;
    }
  }
}

// Sequences of no tokens give their states back.
TEST(Recurrences, TakeNoTokens) {
  const Tensor q = noise({1, 0, 1, 16}, 1), v = noise({1, 0, 1, 16}, 2), state = noise({1, 1, 16, 16}, 3);
  const LinearAttentionResult result = linear_attention(
      q, q, v, {.initial_state = state, .output_final_state = true, .target = Target::interpreter()});
  EXPECT_TRUE(equal(result.final_state, state));
}

TEST(Decays, AreThoseOfTheModels) {
  EXPECT_NEAR(retention_decays(4).data_as<float>()[3], std::log(1 - std::pow(2.0, -8)), 1e-8);
  EXPECT_NEAR(lightning_decays(4, 1, 2).data_as<float>()[3], -4, 1e-6);
  EXPECT_EQ(refusal([] { lightning_decays(4, 2, 2); }),
            "lightning_decays, argument 'layer': expected 0 to 1, given 2");
  EXPECT_EQ(refusal([] { retention_decays(0); }),
            "retention_decays, argument 'heads': expected 1 or more, given 0");
}

TEST(Recurrences, RefuseWrongCalls) {
  const Tensor q = noise({1, 4, 2, 16}, 1), v = noise({1, 4, 2, 16}, 2);
  const auto refused = [&](LinearAttention options) {
    return refusal([&] { linear_attention(q, q, v, std::move(options)); });
  };
  EXPECT_EQ(refused({.g = Tensor::zeros({1, 4, 2}, bf16)}),
            "linear_attention, argument 'g': expected dtype f32, given bf16 [1, 4, 2] strides [8, 2, 1]; "
            "convert it");
  EXPECT_EQ(refusal([&] {
              linear_attention(q, q, noise({1, 4, 3, 16}, 2));
            }),
            "linear_attention, argument 'v': expected [batch, tokens, key_heads * group, d_v] with key_heads "
            "= 2, as "
            "q, given f32 [1, 4, 3, 16] strides [192, 48, 16, 1]; give it that shape");
  const Tensor fences = Tensor::from(std::vector<int>{0, 3, 5});
  EXPECT_EQ(refusal([&] {
              linear_attention(noise({4, 2, 16}, 1), noise({4, 2, 16}, 1), noise({4, 2, 16}, 1),
                               {.cu_seqlens = fences});
            }),
            "linear_attention, argument 'cu_seqlens': expected numbers that start with 0, never fall and end "
            "with 4 "
            "tokens, given 5 at position 2; correct the lengths of the sequences");
  const Tensor growing = Tensor::full({1, 4, 2}, f32, 0.5);
  EXPECT_ANY_THROW(linear_attention(q, q, v, {.g = growing, .target = Target::interpreter()}));
}

}  // namespace linear_test
}  // namespace tegula::ops

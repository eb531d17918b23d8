#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"
#include "tegula/explain.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {
namespace short_scans_test {

Tensor noise(const Shape& shape, std::uint64_t seed, DType type) {
  return Tensor::random_normal(shape, type, seed, 0, 0.3);
}

// Sequences of one tile without states form no state: whatever their length, they are those of chunks.
struct ShortInputs {
  Tensor q, k, v, z, g, widths, weights;
  ShortInputs(std::int64_t n, DType type)
      : q(noise({3, n, 1, 16}, 1, type)),
        k(noise({3, n, 1, 16}, 2, type)),
        v(noise({3, n, 2, 24}, 3, type)),
        z(noise({3, n, 2, 24}, 4, type)),
        g(Tensor::random_uniform({3, n, 2}, f32, 5, -0.2, 0)),
        widths(Tensor::random_uniform({3, n, 2}, f32, 6, 0, 0.2)),
        weights(Tensor::random_uniform({3, n, 1, 16}, type, 7, 0.1, 1)) {}
};

// Three sequences one behind the other.
Tensor packed(const Tensor& t) {
  Shape shape = t.shape();
  shape.erase(shape.begin()), shape[0] *= 3;
  return t.reshape(shape);
}

std::vector<Tensor> short_scans(const ShortInputs& x, Target target) {
  const Tensor decays = Tensor::from<float>({-0.01f, -0.3f}), rates = Tensor::from<float>({-0.5, -0.1}),
               shares = Tensor::from<float>({0.5, 2});
  std::vector<Tensor> results{
      linear_attention(x.q, x.k, x.v, {.target = target}).out,
      linear_attention(x.q, x.k, x.v, {.g = x.g, .g_gamma = decays, .target = target}).out,
      linear_attention(x.weights, x.weights, x.v, {.g_gamma = decays, .normalize = true, .target = target})
          .out,
      ssd(x.v, x.widths, rates, x.k, x.q, {.D = shares, .z = x.z, .target = target}).out};
  const std::int64_t n = x.q.size(1);
  const auto last = static_cast<std::int32_t>(3 * n);
  const Tensor fences = Tensor::from<std::int32_t>({0, 0, last / 3, last - 1, last});
  results.push_back(
      linear_attention(packed(x.q), packed(x.k), packed(x.v),
                       {.g = packed(x.g), .cu_seqlens = fences, .max_seqlen = 2 * n, .target = target})
          .out);
  return results;
}
TEST(Recurrences, OfShortSequencesAreThoseOfChunks) {
  if (test_targets().size() == 1) return;
  for (const std::int64_t tokens : {1, 2, 8, 17, 63, 64, 65, 128}) {
    const ShortInputs x(tokens, bf16);
    const std::vector<Tensor> expected = short_scans(x, Target::interpreter()),
                              own = short_scans(x, Target::emulated_sm90());
    for (std::size_t i = 0; i < own.size(); ++i)
      EXPECT_LT(error_of(own[i], expected[i]).norm, 1e-2) << tokens << " tokens, result " << i;
  }
}

// So are their gradients, of heads that share keys and of packed sequences.
std::vector<Tensor> short_gradients(const ShortInputs& x, Target target) {
  const Tensor decays = Tensor::from<float>({-0.01f, -0.3f}), rates = Tensor::from<float>({-0.5, -0.1}),
               shares = Tensor::from<float>({0.5, 2});
  const std::int64_t n = x.q.size(1);
  const Tensor dout = noise(x.v.shape(), 8, x.v.dtype());
  std::vector<Tensor> results;
  const auto add = [&](const LinearAttentionGradients& own) {
    results.insert(results.end(), {own.dq, own.dk, own.dv});
    for (const Tensor& gates : {own.dg, own.dg_gamma})
      if (gates.nelements() > 0) results.push_back(gates);
  };
  add(linear_attention_backward(dout, x.q, x.k, x.v, {.target = target}));
  add(linear_attention_backward(dout, x.q, x.k, x.v, {.g = x.g, .g_gamma = decays, .target = target}));
  add(linear_attention_backward(dout, x.weights, x.weights, x.v,
                                {.g_gamma = decays, .normalize = true, .target = target}));
  const SsdGradients space =
      ssd_backward(dout, x.v, x.widths, rates, x.k, x.q, {.D = shares, .z = x.z, .target = target});
  results.insert(results.end(), {space.dx, space.ddt, space.dA, space.dB, space.dC, space.dD, space.dz});
  const auto last = static_cast<std::int32_t>(3 * n);
  const Tensor fences = Tensor::from<std::int32_t>({0, 0, last / 3, last - 1, last});
  add(linear_attention_backward(
      packed(dout), packed(x.q), packed(x.k), packed(x.v),
      {.g = packed(x.g), .cu_seqlens = fences, .max_seqlen = 2 * n, .target = target}));
  return results;
}
TEST(Recurrences, HaveGradientsOfShortSequences) {
  if (test_targets().size() == 1) return;
  for (const std::int64_t tokens : {2, 17, 64}) {
    const ShortInputs x(tokens, bf16);
    const std::vector<Tensor> expected = short_gradients(x, Target::interpreter()),
                              own = short_gradients(x, Target::emulated_sm90());
    ASSERT_EQ(own.size(), expected.size());
    for (std::size_t i = 0; i < own.size(); ++i)
      EXPECT_LT(error_of(own[i], expected[i]).norm, 4e-2) << tokens << " tokens, result " << i;
  }
}

// States before or after them, more tokens than a tile's, and f32 have chunks.
TEST(Recurrences, PlanShortSequencesWithoutStates) {
  const auto is_short = [](std::int64_t tokens, DType type, bool last) {
    std::map<std::string, Tensor> inputs;
    for (const char* name : {"q", "k", "v"}) inputs.emplace(name, Tensor::empty({2, tokens, 2, 64}, type));
    std::map<std::string, std::string> options;
    if (last) options.emplace("output_final_state", "true");
    return explain("linear_attention", inputs, options, Target::cuda())[0].kernel.starts_with("scan_short");
  };
  for (const std::int64_t tokens : {1, 9, 63, 65, 128}) {
    EXPECT_TRUE(is_short(tokens, bf16, false)) << tokens;
    EXPECT_FALSE(is_short(tokens, bf16, true)) << tokens;
    EXPECT_FALSE(is_short(tokens, f32, false)) << tokens;
  }
  EXPECT_FALSE(is_short(129, bf16, false));
}

TEST(Recurrences, PlanGradientsOfShortSequences) {
  const auto has = [](std::int64_t tokens, const char* program) {
    std::map<std::string, Tensor> inputs;
    for (const char* name : {"dout", "q", "k", "v"})
      inputs.emplace(name, Tensor::empty({2, tokens, 2, 64}, bf16));
    const auto said = explain("linear_attention_backward", inputs, {}, Target::cuda());
    return std::any_of(said.begin(), said.end(), [&](auto& own) { return own.kernel.starts_with(program); });
  };
  for (const std::int64_t tokens : {2, 63, 64}) {
    EXPECT_TRUE(has(tokens, "scan_short_gradients")) << tokens;
    EXPECT_FALSE(has(tokens, "scan_state")) << tokens;
  }
  EXPECT_FALSE(has(65, "scan_short_gradients"));
}

// Warp groups multiply 64 rows of a state: those of 72 features are filled up, and not those of few.
TEST(Recurrences, FillUpFeaturesOfStates) {
  const auto first = [](std::int64_t d) {
    std::map<std::string, Tensor> inputs;
    for (const char* name : {"q", "k", "v"}) inputs.emplace(name, Tensor::empty({2, 200, 2, d}, bf16));
    return explain("linear_attention", inputs, {}, Target::cuda())[0].kernel;
  };
  for (const std::int64_t d : {72, 96, 160}) EXPECT_NE(first(d).find("_filled"), std::string::npos) << d;
  for (const std::int64_t d : {48, 64, 128}) EXPECT_EQ(first(d).find("_filled"), std::string::npos) << d;
  if (test_targets().size() == 1) return;
  const auto results = [](Target target) {
    const Tensor q = noise({2, 150, 1, 72}, 1, bf16), k = noise({2, 150, 1, 72}, 2, bf16),
                 v = noise({2, 150, 2, 24}, 3, bf16), state = noise({2, 2, 72, 24}, 4, f32);
    const auto own =
        linear_attention(q, k, v, {.initial_state = state, .output_final_state = true, .target = target});
    return std::vector<Tensor>{own.out, own.final_state};
  };
  const std::vector<Tensor> expected = results(Target::interpreter()), own = results(Target::emulated_sm90());
  for (std::size_t i = 0; i < own.size(); ++i) EXPECT_LT(error_of(own[i], expected[i]).norm, 1e-2) << i;
}

// Blocks have columns that divide those of values, where that is faster.
TEST(Recurrences, DivideColumnsEvenly) {
  for (const std::int64_t columns : {96, 192}) {
    std::map<std::string, Tensor> inputs;
    for (const char* name : {"q", "k"}) inputs.emplace(name, Tensor::empty({1, 4096, 32, 128}, bf16));
    inputs.emplace("v", Tensor::empty({1, 4096, 32, columns}, bf16));
    bool is_met = false;
    for (const auto& said : explain("linear_attention", inputs, {}, Target::cuda())) {
      const std::size_t at = said.kernel.find("_b");
      if (said.kernel.starts_with("scan_segments") || at == std::string::npos) continue;
      is_met = true;
      EXPECT_EQ(columns % std::stoi(said.kernel.substr(said.kernel.find("_b", said.kernel.find("_dv")) + 2)),
                0)
          << said.kernel;
    }
    EXPECT_TRUE(is_met) << columns;
  }
}

// Steps of tokens that a chunk does not have are not formed: a bias alone may be below zero.
TEST(Recurrences, HaveNoStepsBehindTheLastToken) {
  for (const Target target : test_targets()) {
    const std::int64_t tokens = 70;
    const Tensor x = noise({1, tokens, 2, 16}, 1, f32), B = noise({1, tokens, 1, 16}, 2, f32),
                 C = noise({1, tokens, 1, 16}, 3, f32),
                 dt = Tensor::random_uniform({1, tokens, 2}, f32, 4, 0.5, 1),
                 rates = Tensor::from<float>({-0.5, -0.1}), bias = Tensor::from<float>({-0.4f, -0.3f});
    const auto result = [&](Target by) {
      return ssd(x, dt, rates, B, C, {.dt_bias = bias, .target = by}).out;
    };
    EXPECT_LT(error_of(result(target), result(Target::interpreter())).norm, 1e-4);
  }
}

// The work of short sequences is that of their pairs of tokens, of long ones that of states.
TEST(Recurrences, CountTheLessWork) {
  const auto work = [](std::int64_t tokens) {
    Tensors inputs;
    for (const char* name : {"q", "k", "v"}) inputs.emplace(name, Tensor::empty({2, tokens, 2, 64}, bf16));
    return CheckedCall(find_schema("linear_attention"), inputs, {}).bound.flops();
  };
  EXPECT_EQ(work(8), 2 * 8 * 2 * 9 * 128);
  EXPECT_EQ(work(4096), 2. * 4096 * 2 * 4 * 64 * 64);
}

// Sums of gates and weights of a head are rows of chunks, which the copy engine brings as it does tiles.
TEST(Recurrences, HaveVectorsThatComeAhead) {
  for (const std::int64_t tokens : {8, 64, 4096}) {
    std::map<std::string, Tensor> inputs{{"A", Tensor::empty({2}, f32)},
                                         {"dt", Tensor::empty({2, tokens, 2}, f32)}};
    for (const char* name : {"x", "B", "C"}) inputs.emplace(name, Tensor::empty({2, tokens, 2, 64}, bf16));
    bool is_met = false;
    for (const auto& said : explain("ssd", inputs, {}, Target::cuda())) {
      if (!said.kernel.starts_with("scan")) continue;
      is_met = true;
      for (const std::string& note : said.notes)
        EXPECT_EQ(note.find("by threads"), std::string::npos) << note;
    }
    EXPECT_TRUE(is_met) << tokens;
  }
}

// With weights, blocks of 32 columns of few features take more than half of a processor's registers: these
// are chosen where a processor has one of them.
TEST(Recurrences, HaveAllRegistersOfAProcessorWhereTwoBlocksWouldSpill) {
  bool is_met = false;
  std::map<std::string, Tensor> inputs{{"A", Tensor::empty({32}, f32)},
                                       {"dt", Tensor::empty({1, 4096, 32}, f32)},
                                       {"x", Tensor::empty({1, 4096, 32, 96}, bf16)}};
  for (const char* name : {"B", "C"}) inputs.emplace(name, Tensor::empty({1, 4096, 16, 64}, bf16));
  for (const auto& said : explain("ssd", inputs, {}, Target::cuda())) {
    if (said.kernel.find("_b32_") == std::string::npos) continue;
    is_met = true;
    EXPECT_NE(said.kernel.find("_deep"), std::string::npos) << said.kernel;
  }
  EXPECT_TRUE(is_met);
}

// Plans say where processors wait for a chain of chunks, and where rows of tiles are without tokens.
TEST(Recurrences, SayWhyTheyAreSlow) {
  const OperatorSchema& schema = find_schema("linear_attention");
  const auto says = [&](std::int64_t batch, std::int64_t tokens, std::int64_t heads, const char* words) {
    Tensors inputs;
    for (const char* name : {"q", "k", "v"})
      inputs.emplace(name, Tensor::empty({batch, tokens, heads, 64}, bf16));
    for (const std::string& note : listed_by_name(schema, inputs, {}, Target::cuda()).notes)
      if (note.find(words) != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(says(1, 16384, 1, "chunks of 64 tokens wait"));
  EXPECT_TRUE(says(16, 1000, 1, "chunks of 64 tokens wait"));
  EXPECT_FALSE(says(1, 16384, 64, "chunks of 64 tokens wait"));
  EXPECT_TRUE(says(256, 65, 8, "sequences of 65 tokens have a tile of 128 rows"));
  EXPECT_TRUE(says(256, 9, 8, "sequences of 9 tokens have a tile of 16 rows"));
  for (const std::int64_t tokens : {64, 128, 1000})
    EXPECT_FALSE(says(256, tokens, 8, "have a tile")) << tokens;
}

}  // namespace short_scans_test
}  // namespace tegula::ops

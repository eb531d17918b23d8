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
  const auto packed = [&](const Tensor& t) {
    Shape shape = t.shape();
    shape.erase(shape.begin()), shape[0] *= 3;
    return t.reshape(shape);
  };
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

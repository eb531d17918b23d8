// The steps of ssd, one after another, are ssd, and so are their gradients.
#include <gtest/gtest.h>

#include "tegula/ops/ssd.hpp"
#include "tegula/ops/ssd_chunks.hpp"

namespace tegula::ops {
namespace {

struct ChunkedCase {
  const char* name;
  std::int64_t tokens;
  bool all_options;
  std::vector<std::int32_t> fences = {};  // of packed sequences
};
const ChunkedCase chunked_cases[] = {
    {"one_chunk", 20, false},
    {"several", 150, false},
    {"options", 129, true},
    // Of sequences that end where a chunk does, and of none.
    {"packed", 200, true, {0, 64, 64, 70, 200}},
};

void expect_near(const Tensor& got, const Tensor& of_ssd, const char* name) {
  const std::vector<double> a = got.values<double>(), b = of_ssd.values<double>();
  ASSERT_EQ(a.size(), b.size()) << name;
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-3 * (1 + std::abs(b[i]))) << name;
}
Tensor sum_of(const Tensor& a, const Tensor& b) {
  Tensor sum = Tensor::zeros(a.shape(), f32);
  for (std::int64_t i = 0; i < nelements(sum); ++i)
    sum.data_as<float>()[i] = a.data_as<float>()[i] + b.data_as<float>()[i];
  return sum;
}

class ChunkedSsd : public ::testing::TestWithParam<ChunkedCase> {
 protected:
  static constexpr std::int64_t batch = 2, heads = 4, groups = 2, p = 12, n = 20;
  const ChunkedCase& c = GetParam();
  const bool packed = !c.fences.empty();
  const std::int64_t sequences = packed ? static_cast<std::int64_t>(c.fences.size()) - 1 : batch;

  // Of all tokens, or of those of each sequence of a batch.
  Shape of_tokens(Shape others) const {
    others.insert(others.begin(), c.tokens);
    if (!packed) others.insert(others.begin(), batch);
    return others;
  }
  Tensor noise(Shape others, std::uint64_t seed) const {
    return Tensor::random_normal(of_tokens(std::move(others)), f32, seed);
  }
  // Boundaries among chunks in the place of those among tokens.
  Tensor chunk_fences() const {
    std::vector<std::int32_t> result = c.fences;
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = result[i] / 64 + static_cast<std::int32_t>(i);
    return Tensor::from(result);
  }

  const Tensor x = noise({heads, p}, 1), B = noise({groups, n}, 4), C = noise({groups, n}, 5),
               z = noise({heads, p}, 8), dout = noise({heads, p}, 9),
               dt = Tensor::random_uniform(of_tokens({heads}), f32, 2, 0, .3),
               A = Tensor::random_uniform({heads}, f32, 3, -1, 0), D = Tensor::random_normal({heads}, f32, 7),
               start = Tensor::random_normal({sequences, heads, p, n}, f32, 6),
               dlast = Tensor::random_normal({sequences, heads, p, n}, f32, 10),
               bias = Tensor::full({heads}, f32, .1), fences = packed ? Tensor::from(c.fences) : Tensor(),
               among_chunks = packed ? chunk_fences() : Tensor();
  Ssd whole{.output_final_state = true, .target = Target::cpu()};
  SsdChunkState states{.target = Target::cpu()};
  SsdStatePassing passing{.target = Target::cpu()};
  SsdChunkScan scan{.target = Target::cpu()};

  void SetUp() override {
    if (c.all_options) {
      whole.initial_state = passing.initial_state = start.ref();
      whole.D = scan.D = D.ref(), whole.z = scan.z = z.ref();
      whole.dt_bias = states.dt_bias = scan.dt_bias = bias.ref();
      whole.dt_softplus = states.dt_softplus = scan.dt_softplus = true;
    }
    if (packed) {
      whole.cu_seqlens = states.cu_seqlens = scan.cu_seqlens = fences.ref();
      passing.cu_chunks = among_chunks.ref();
    }
  }
};

TEST_P(ChunkedSsd, IsSsd) {
  const SsdResult wanted = ssd(x, dt, A, B, C, whole);
  const SsdChunkStateResult left = ssd_chunk_state(x, dt, A, B, states);
  const Shape of_states = packed ? Shape{c.tokens / 64 + sequences, heads, p, n}
                                 : Shape{batch, (c.tokens + 63) / 64, heads, p, n};
  EXPECT_EQ(left.states.shape(), of_states);
  const SsdStatePassingResult passed = ssd_state_passing(left.states, left.decays, passing);
  expect_near(ssd_chunk_scan(x, dt, A, B, C, passed.starts, scan), wanted.out, "out");
  expect_near(passed.final_state, wanted.final_state, "final_state");
}

TEST_P(ChunkedSsd, HasTheGradientsOfSsd) {
  const SsdGradients wanted = ssd_backward(dout, x, dt, A, B, C, whole, dlast);
  const SsdChunkStateResult left = ssd_chunk_state(x, dt, A, B, states);
  const SsdStatePassingResult passed = ssd_state_passing(left.states, left.decays, passing);
  const SsdChunkScanGradients last = ssd_chunk_scan_backward(dout, x, dt, A, B, C, passed.starts, scan);
  const SsdStatePassingGradients between =
      ssd_state_passing_backward(last.dstarts, dlast, left.states, left.decays, passing);
  const SsdChunkStateGradients first =
      ssd_chunk_state_backward(between.dstates, between.ddecays, x, dt, A, B, states);
  expect_near(last.dC, wanted.dC, "dC");
  expect_near(sum_of(last.dx, first.dx), wanted.dx, "dx");
  expect_near(sum_of(last.dB, first.dB), wanted.dB, "dB");
  expect_near(sum_of(last.ddt, first.ddt), wanted.ddt, "ddt");
  expect_near(sum_of(last.dA, first.dA), wanted.dA, "dA");
  if (!c.all_options) return;
  expect_near(last.dD, wanted.dD, "dD");
  expect_near(last.dz, wanted.dz, "dz");
  expect_near(sum_of(last.ddt_bias, first.ddt_bias), wanted.ddt_bias, "ddt_bias");
  expect_near(between.dinitial_state, wanted.dinitial_state, "dinitial_state");
}
INSTANTIATE_TEST_SUITE_P(All, ChunkedSsd, ::testing::ValuesIn(chunked_cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tegula::ops

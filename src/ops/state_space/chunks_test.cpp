// The steps of ssd, one after another, are ssd.
#include <gtest/gtest.h>

#include "tegula/ops/ssd.hpp"
#include "tegula/ops/ssd_chunks.hpp"

namespace tegula::ops {
namespace {

struct ChunkedCase {
  const char* name;
  std::int64_t tokens;
  bool all_options;
};
const ChunkedCase chunked_cases[] = {
    {"one_chunk", 20, false}, {"several", 150, false}, {"options", 129, true}};

class ChunkedSsd : public ::testing::TestWithParam<ChunkedCase> {};

TEST_P(ChunkedSsd, IsSsd) {
  const ChunkedCase& c = GetParam();
  const std::int64_t batch = 2, heads = 4, groups = 2, p = 12, n = 20, tokens = c.tokens;
  const Tensor x = Tensor::random_normal({batch, tokens, heads, p}, f32, 1),
               dt = Tensor::random_uniform({batch, tokens, heads}, f32, 2, 0, .3),
               A = Tensor::random_uniform({heads}, f32, 3, -1, 0),
               B = Tensor::random_normal({batch, tokens, groups, n}, f32, 4),
               C = Tensor::random_normal({batch, tokens, groups, n}, f32, 5),
               start = Tensor::random_normal({batch, heads, p, n}, f32, 6),
               D = Tensor::random_normal({heads}, f32, 7), z = Tensor::random_normal(x.shape(), f32, 8),
               bias = Tensor::full({heads}, f32, .1);
  Ssd whole{.output_final_state = true, .target = Target::cpu()};
  SsdChunkState states{.target = Target::cpu()};
  SsdStatePassing passing{.target = Target::cpu()};
  SsdChunkScan scan{.target = Target::cpu()};
  if (c.all_options) {
    whole.initial_state = passing.initial_state = start.ref();
    whole.D = scan.D = D.ref(), whole.z = scan.z = z.ref();
    whole.dt_bias = states.dt_bias = scan.dt_bias = bias.ref();
    whole.dt_softplus = states.dt_softplus = scan.dt_softplus = true;
  }
  const SsdResult wanted = ssd(x, dt, A, B, C, whole);
  const SsdChunkStateResult left = ssd_chunk_state(x, dt, A, B, states);
  EXPECT_EQ(left.states.shape(), (Shape{batch, (tokens + 63) / 64, heads, p, n}));
  const SsdStatePassingResult passed = ssd_state_passing(left.states, left.decays, passing);
  const auto expect_near = [](const Tensor& got, const Tensor& of_ssd) {
    const std::vector<double> a = got.values<double>(), b = of_ssd.values<double>();
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4 * (1 + std::abs(b[i])));
  };
  expect_near(ssd_chunk_scan(x, dt, A, B, C, passed.starts, scan), wanted.out);
  expect_near(passed.final_state, wanted.final_state);
}
INSTANTIATE_TEST_SUITE_P(All, ChunkedSsd, ::testing::ValuesIn(chunked_cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tegula::ops

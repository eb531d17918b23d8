// Tiles of attention on a CPU.
#include "ops/attention/plan.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tegula::ops {
namespace attention_plan_test {

std::string tiles_of(std::int64_t tokens, int dim, bool by_pairs) {
  const AttentionProblem problem{.heads = 8,
                                 .queries = tokens,
                                 .keys = tokens,
                                 .all_queries = tokens,
                                 .seen = tokens,
                                 .dim = dim,
                                 .dim_v = dim,
                                 .by_pairs = by_pairs};
  const AttentionPlan plan = plan_attention(problem, {});
  return fmt::format("{}x{}", plan.queries, plan.keys);
}

// Where products take little of the time, that is of steps, which read and write the sums once more.
TEST(AttentionPlan, HasMoreKeysAStepWhereProductsAreByPairs) {
  for (const int dim : {64, 128}) {
    EXPECT_EQ(tiles_of(2048, dim, false), "256x128") << dim;
    EXPECT_EQ(tiles_of(2048, dim, true), "256x256") << dim;
    EXPECT_EQ(tiles_of(60, dim, true), "64x64") << dim;
  }
  EXPECT_EQ(tiles_of(2048, 256, true), "256x128") << "tiles of more than a second-level cache";
}

}  // namespace attention_plan_test
}  // namespace tegula::ops

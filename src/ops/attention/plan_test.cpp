// Tiles of attention on a CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/attention/backward_plan.hpp"

namespace tegula::ops {
namespace attention_plan_test {

AttentionProblem problem_of(std::int64_t tokens, int dim, bool by_pairs) {
  return {.heads = 8,
          .queries = tokens,
          .keys = tokens,
          .all_queries = tokens,
          .seen = tokens,
          .dim = dim,
          .dim_v = dim,
          .by_pairs = by_pairs};
}

std::string text_of(const AttentionPlan& plan) { return fmt::format("{}x{}", plan.queries, plan.keys); }
std::string tiles_of(std::int64_t tokens, int dim, bool by_pairs) {
  return text_of(plan_attention(problem_of(tokens, dim, by_pairs), {}));
}
std::string tiles_of_gradients(std::int64_t tokens, int dim, bool by_pairs) {
  return text_of(plan_attention_backward(problem_of(tokens, dim, by_pairs), {}));
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

TEST(AttentionPlan, HasLargerTilesOfGradientsWhereProductsAreByPairs) {
  for (const int dim : {64, 128}) {
    EXPECT_EQ(tiles_of_gradients(2048, dim, true), "256x256") << dim;
    EXPECT_NE(tiles_of_gradients(2048, dim, false), "256x256") << dim;
    EXPECT_NE(tiles_of_gradients(128, dim, true), "256x256") << dim;
  }
}

}  // namespace attention_plan_test
}  // namespace tegula::ops

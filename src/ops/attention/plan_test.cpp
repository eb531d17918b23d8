// Tiles of attention on a CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/attention/backward_plan.hpp"
#include "ops/schema/tile_registers.hpp"
#include "tegula/ops/attention.hpp"
#include "tegula/ops/attention_backward.hpp"

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

// Tiles on the diagonal form scores that nobody sees.
TEST(AttentionPlan, HasSmallerTilesOfFewTokensUnderAMask) {
  AttentionProblem problem = problem_of(512, 64, false);
  EXPECT_EQ(text_of(plan_attention(problem, {})), "256x128");
  problem.right = 0;
  EXPECT_EQ(text_of(plan_attention(problem, {})), "64x64");
  problem.queries = problem.keys = problem.seen = 8192;
  EXPECT_EQ(text_of(plan_attention(problem, {})), "256x128");
}

TEST(AttentionPlan, HasTilesOf128QueriesWhereProductsAreByPairs) {
  AttentionProblem problem = problem_of(100, 128, true);
  problem.group = 4, problem.keys = problem.seen = 1000, problem.right = 0;
  EXPECT_EQ(text_of(plan_attention(problem, {})), "128x256");
  problem.by_pairs = false;
  EXPECT_EQ(text_of(plan_attention(problem, {})), "64x64");
}

TEST(AttentionPlan, HasLargerTilesOfGradientsWhereProductsAreByPairs) {
  for (const int dim : {64, 128}) {
    EXPECT_EQ(tiles_of_gradients(2048, dim, true), "256x256") << dim;
    EXPECT_NE(tiles_of_gradients(2048, dim, false), "256x256") << dim;
    EXPECT_NE(tiles_of_gradients(128, dim, true), "256x256") << dim;
  }
}

// Whether the processor has the instructions or not: the programs are the same.
TEST(AttentionPlan, OfPairsGivesTheNumbersOfTheOther) {
  const Shape shape{1, 600, 2, 64};
  const auto drawn = [&](int seed) { return Tensor::random_normal(shape, bf16, seed); };
  const Tensor q = drawn(1), k = drawn(2), v = drawn(3), dout = drawn(4);
  for (const bool causal : {false, true}) {
    const AttentionOptions options{.causal = causal, .target = Target::cpu()};
    const auto results = [&](bool pairs) {
      const SupposedTileRegisters supposed(pairs);
      const AttentionResult forward = attention(q, k, v, options);
      const AttentionGradients own = attention_backward(dout, q, k, v, forward.out, forward.lse, options);
      return std::vector{forward.out, own.dq, own.dk, own.dv};
    };
    const std::vector<Tensor> by_pairs = results(true), others = results(false);
    for (std::size_t i = 0; i < others.size(); ++i)
      EXPECT_TRUE(all_close(by_pairs[i], others[i], 0.02, 0.02)) << causal << " " << i;
  }
}

}  // namespace attention_plan_test
}  // namespace tegula::ops

// Attention with features that are no width of the tensor cores' rows: tiles have more, which are zeros, and
// what the copy engine does not take is copied first. By the text for Hopper GPUs, run on the CPU.
#include <gtest/gtest.h>

#include "ops/reference/reference.hpp"
#include "ops/testing/operators.hpp"
#include "runtime/testing/test_environment.hpp"
#include "tegula/ops.hpp"

namespace tegula::emulation {
namespace features_test {

struct Row {
  std::int64_t dim, dim_v;
  std::int64_t queries = 70, keys = 90, heads = 2, kv_heads = 1;
  ops::AttentionOptions options = {};
  DType type = bf16;
};

std::vector<Row> table() {
  std::vector<Row> rows{
      {33, 72, 3, 200, 4, 1, {.splits = 3}, f16},
      {72, 40, 70, 100, 2, 1, {.causal = true, .left = 30, .softcap = 20}},
      {72, 104, 130, 90, 4, 1, {.causal = true, .tiles = {64, 64}}},  // copied keys
      {33, 40, 70, 80, 1, 1, {.layout = ops::Layout::bhsd}, f16},
  };
  if (tests_all_rows())
    for (const auto& [dim, dim_v] :
         {std::pair(8, 8), std::pair(24, 40), std::pair(136, 104), std::pair(200, 128), std::pair(1, 3),
          std::pair(100, 65), std::pair(161, 16), std::pair(272, 264)})
      rows.push_back({dim, dim_v, 70, 90, 2, 1, {.causal = dim % 3 != 0}});
  return rows;
}

class Features : public ::testing::TestWithParam<Row> {};

Shape shape_of(const Row& row, std::int64_t tokens, std::int64_t heads, std::int64_t features) {
  if (row.options.layout == ops::Layout::bhsd) return {1, heads, tokens, features};
  return {1, tokens, heads, features};
}

TEST_P(Features, AgreeWithTheFormula) {
  const Row& row = GetParam();
  const Tensor q = Tensor::random_normal(shape_of(row, row.queries, row.heads, row.dim), row.type, 1),
               k = Tensor::random_normal(shape_of(row, row.keys, row.kv_heads, row.dim), row.type, 2),
               v = Tensor::random_normal(shape_of(row, row.keys, row.kv_heads, row.dim_v), row.type, 3),
               dout = Tensor::random_normal(shape_of(row, row.queries, row.heads, row.dim_v), row.type, 4);
  ops::AttentionOptions options = row.options;
  options.target = Target::emulated_sm90();
  const ops::AttentionResult result = ops::attention(q, k, v, options),
                             exact = ops::reference::attention(q, k, v, options);
  EXPECT_TRUE(all_close(result.out, exact.out, 2e-2, 2e-2));
  EXPECT_TRUE(all_close(result.lse, exact.lse, 1e-3, 1e-3));
  const Tensor out = exact.out.to(row.type), lse = exact.lse.to(f32);
  const ops::AttentionGradients gradients = ops::attention_backward(dout, q, k, v, out, lse, options);
  const auto formula = ops::reference::attention_backward(dout, q, k, v, options, {});
  EXPECT_TRUE(all_close(gradients.dq, formula.dq, 3e-2, 3e-2));
  EXPECT_TRUE(all_close(gradients.dk, formula.dk, 3e-2, 3e-2));
  EXPECT_TRUE(all_close(gradients.dv, formula.dv, 3e-2, 3e-2));
}

INSTANTIATE_TEST_SUITE_P(Table, Features, ::testing::ValuesIn(table()), [](const auto& info) {
  return "d" + std::to_string(info.param.dim) + "_v" + std::to_string(info.param.dim_v) + "_" +
         std::to_string(info.index);
});

}  // namespace features_test
}  // namespace tegula::emulation

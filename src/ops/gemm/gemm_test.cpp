// Products against their formula, over one table.
#include "ops/gemm/gemm.hpp"

#include "ops/gemm/plan.hpp"
#include "ops/testing.hpp"

namespace tegula::ops {
namespace gemm_test {

struct Row {
  std::int64_t m = 20, n = 24, k = 28;
  DType type = f32;
  GemmOptions options = {};
  std::int64_t batch_a = 0, batch_b = 0;  // 0: a matrix
  bool bias = false;
};

std::vector<Row> table() {
  std::vector<Row> rows;
  for (std::int64_t m : {0, 1, 17, 65})
    for (std::int64_t n : {0, 1, 33, 70})
      for (std::int64_t k : {0, 1, 45}) rows.push_back({.m = m, .n = n, .k = k});
  for (DType type : {f32, f16, bf16, e4m3, e5m2})
    for (bool ta : {false, true})
      for (bool tb : {false, true})
        rows.push_back({.type = type, .options = {.transpose_a = ta, .transpose_b = tb}, .bias = ta});
  for (Activation activation : {Activation::relu, Activation::gelu, Activation::silu})
    for (bool bias : {false, true}) rows.push_back({.options = {.activation = activation}, .bias = bias});
  for (DType type : {f16, bf16}) {
    rows.push_back({.type = type, .options = {.out_dtype = f32}});
    rows.push_back({.type = f32, .options = {.out_dtype = type}});
  }
  rows.push_back({.options = {.scale = -0.75}, .bias = true});
  rows.push_back({.type = e4m3, .options = {.transpose_b = true, .scale = 0.01, .out_dtype = f32}});
  for (auto [a, b] : {std::pair(2, 2), std::pair(3, 0), std::pair(0, 3), std::pair(1, 2), std::pair(0, 1)})
    rows.push_back({.batch_a = a, .batch_b = b});
  rows.push_back({.m = 129, .n = 127, .k = 40, .options = {.tiles = {64, 32, 16}}});
  rows.push_back({.m = 30, .n = 40, .k = 50, .options = {.tiles = {7, 9, 11}}});
  return rows;
}

Tensor by_formula(const TensorRef& a, const TensorRef& b, const GemmOptions& options) {
  const Gemm call{options, a, b};
  return formula_of(gemm_schema(), &call).at("out");
}

Tensor matrix(std::int64_t batch, std::int64_t rows, std::int64_t columns, bool transposed, DType type,
              int seed) {
  if (transposed) std::swap(rows, columns);
  return Tensor::random_normal(batch == 0 ? Shape{rows, columns} : Shape{batch, rows, columns}, type, seed);
}

TEST(Gemm, AgreesWithTheFormula) {
  for (const Row& row : table())
    for (Target target : test_targets()) {
      SCOPED_TRACE(std::to_string(row.m) + " " + std::to_string(row.n) + " " + std::to_string(row.k) + " " +
                   std::string(row.type.name()) + " " + std::string(target.name()));
      const Planted a(matrix(row.batch_a, row.m, row.k, row.options.transpose_a, row.type, 1)),
          b(matrix(row.batch_b, row.k, row.n, row.options.transpose_b, row.type, 2)),
          bias(Tensor::random_normal({row.n}, row.type.bits() == 8 ? bf16 : row.type, 3));
      GemmOptions options = row.options;
      if (row.bias) options.bias = bias.inside;
      const Tensor exact = by_formula(a.inside, b.inside, options);
      const DType type = options.out_dtype.value_or(row.type.bits() == 8 ? bf16 : row.type);
      const Planted out(exact.shape(), type);
      options.out = out.inside, options.target = target;
      gemm(a.inside, b.inside, options);
      expect_close("out", out.inside, exact, exact.to(type), type);
      EXPECT_TRUE(out.is_clean_outside());
    }
}

// A matrix that is transposed in memory needs no copy, whatever the options say.
TEST(Gemm, TakesTransposedViews) {
  for (Target target : test_targets()) {
    const Tensor a = Tensor::random_normal({12, 20}, f32, 1), b = Tensor::random_normal({24, 12}, f32, 2);
    const Tensor exact = by_formula(a.transpose(0, 1), b.transpose(0, 1), {});
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        const Tensor result = gemm(ta ? a : a.transpose(0, 1), tb ? b : b.transpose(0, 1),
                                   {.transpose_a = ta, .transpose_b = tb, .target = target});
        EXPECT_TRUE(all_close(result, exact, 1e-5, 1e-5));
      }
  }
}

TEST(Gemm, PropagatesNan) {
  Tensor a = Tensor::full({2, 3}, f32, 1);
  a.set({1, 1}, std::nan(""));
  for (Activation activation : {Activation::none, Activation::relu, Activation::gelu, Activation::silu}) {
    const Tensor out =
        gemm(a, Tensor::full({3, 2}, f32, 1), {.activation = activation, .target = Target::interpreter()});
    EXPECT_FALSE(std::isnan(out.get({0, 0})));
    EXPECT_TRUE(std::isnan(out.get({1, 0})));
  }
}

TEST(Gemm, PlansFitTheCache) {
  for (std::int64_t m : {1, 16, 100, 1024, 4096})
    for (std::int64_t n : {1, 64, 1000, 4096}) {
      const GemmProblem problem{1, m, n, 1024};
      EXPECT_TRUE(std::isfinite(estimate(problem, plan_gemm(problem, {}))));
    }
  EXPECT_EQ(plan_gemm({1, 16, 16, 16}, {}).m, 32);
  EXPECT_EQ(plan_gemm({1, 4096, 4096, 4096}, {}).m, 256);
  EXPECT_EQ(plan_gemm({1, 100, 100, 100}, {.m = 48}).m, 48);
}

TEST(Gemm, RefusesWrongCalls) {
  const Tensor a = Tensor::zeros({4, 6}, f32), b = Tensor::zeros({6, 8}, f32);
  auto call = [](const TensorRef& x, const TensorRef& y, GemmOptions options = {}) {
    return [=] { gemm(x, y, options); };
  };
  expect_refusal(call(a.to(i32), b), "gemm, argument 'a': expected dtype f32, f16, bf16, e4m3 or e5m2");
  expect_refusal(call(a, b.to(f16)), "argument 'b': expected dtype f32");
  expect_refusal(call(a.select(0, 0), b), "argument 'a': expected rank 2 or 3");
  expect_refusal(call(a, b, {.transpose_a = true}), "argument 'b': expected [batch, k, n] with k = 4, as a");
  expect_refusal(call(a.expand({2, 4, 6}), b.expand({3, 6, 8})),
                 "expected [batch, k, n] with batch = 2, as a, or 1");
  expect_refusal(call(a, b, {.bias = Tensor::zeros({4}, f32)}),
                 "argument 'bias': expected [n] with n = 8, as b");
  expect_refusal(call(a, b, {.scale = std::nan("")}), "argument 'scale': expected a finite factor");
  expect_refusal(call(a, b, {.out_dtype = i32}), "argument 'out_dtype': expected f32, f16 or bf16");
  expect_refusal(call(a, b, {.out = Tensor::zeros({8, 4}, f32)}),
                 "argument 'out': expected [batch, m, n] = [4, 8]");
  expect_refusal(call(a, b, {.tiles = {-3, 0, 0}}), "argument 'tile_m': expected extents from 1 to 4096");
  const Tensor wide = Tensor::zeros({8, 12}, f32);
  expect_refusal(call(wide.slice(0, 0, 8, 2).slice(1, 0, 12, 2), b), "stride 1 along rows or columns");
}

}  // namespace
}  // namespace tegula::ops

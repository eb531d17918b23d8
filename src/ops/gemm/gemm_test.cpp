// Products against their formula, over one table.
#include <fmt/format.h>

#include "ops/pieces/plan.hpp"
#include "ops/pieces/product_plan.hpp"
#include "ops/products/matrix_product.hpp"
#include "ops/testing/operators.hpp"

namespace tegula::ops {
namespace gemm_test {

struct Row {
  std::int64_t m = 20, n = 24, k = 28;
  DType type = f32;
  Gemm options = {};
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

Tensor by_formula(const TensorRef& a, const TensorRef& b, Gemm options) {
  options.a = a, options.b = b;
  return formula_of(find_schema("gemm"), &options).at("out");
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
      Gemm options = row.options;
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

// Splits of k, rows that the copy engine does not take, and tiles of few rows or columns, for every executor.
struct SplitGemm {
  DType type;
  bool ta, tb;
  int splits;
};

class GemmSplits : public testing::TestWithParam<SplitGemm> {};

TEST_P(GemmSplits, AgreeWithTheFormula) {
  const SplitGemm& row = GetParam();
  std::vector<Target> targets{Target::interpreter(), Target::emulated_sm90()};
  if (row.ta && row.tb) targets = test_targets();
  if (!row.ta && row.tb) targets.push_back(Target::emulated());
  const Planted a(matrix(2, 19, 71, row.ta, row.type, 1)), b(matrix(1, 71, 37, row.tb, row.type, 2)),
      bias(Tensor::random_normal({37}, f32, 3));
  Gemm options{.transpose_a = row.ta,
               .transpose_b = row.tb,
               .bias = bias.inside,
               .activation = Activation::silu,
               .scale = 0.5,
               .tiles = {16, 64, 32, row.splits}};
  const DType type = row.type.bits() == 8 ? bf16 : row.type;
  const Tensor exact = by_formula(a.inside, b.inside, options);
  for (Target target : targets) {
    SCOPED_TRACE(std::string(target.name()));
    const Planted out(exact.shape(), type);
    options.out = out.inside, options.target = target;
    gemm(a.inside, b.inside, options);
    expect_close("out", out.inside, exact, exact.to(type), type);
    EXPECT_TRUE(out.is_clean_outside());
  }
}

std::vector<SplitGemm> split_table() {
  std::vector<SplitGemm> rows;
  int splits = 0;
  for (DType type : {f32, f16, bf16, e4m3, e5m2})
    for (bool ta : {false, true})
      for (bool tb : {false, true})
        if (ta == tb || type == bf16 || type == e4m3) rows.push_back({type, ta, tb, 1 + splits++ % 4});
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Table, GemmSplits, testing::ValuesIn(split_table()), [](auto& info) {
  return fmt::format("{}_{}{}_{}", info.param.type.name(), info.param.ta ? 't' : 'n',
                     info.param.tb ? 't' : 'n', info.param.splits);
});

// Tiles that whole rounds of blocks leave over: splits of k, with the same epilogue.
TEST(Gemm, DividesTheTilesOfTheLastRound) {
  const Planted a(matrix(0, 150, 200, false, bf16, 1)), b(matrix(0, 200, 150, true, bf16, 2)),
      bias(Tensor::random_normal({150}, f32, 3));
  const Tensor exact = by_formula(a.inside, b.inside,
                                  {.transpose_b = true, .bias = bias.inside, .activation = Activation::silu});
  GemmKernel kernel{.type = bf16, .out = bf16, .compute = bf16, .transpose_b = true};
  kernel.epilogue = {.bias = f32, .activation = Activation::silu};
  kernel.tiles = {64, 64, 32, 1}, kernel.tail_splits = 3;
  for (const Target target : {Target::interpreter(), Target::emulated_sm90()}) {
    SCOPED_TRACE(std::string(target.name()));
    const Planted out(exact.shape(), bf16);
    const auto batch = [](const TensorRef& matrix) {
      return matrix.reshape({1, matrix.size(0), matrix.size(1)});
    };
    compile(gemm_kernel(kernel), target)
        .call({{"a", batch(a.inside)},
               {"b", batch(b.inside)},
               {"bias", bias.inside},
               {"out", batch(out.inside)},
               {"whole_tiles", 7}});
    expect_close("out", out.inside, exact, exact.to(bf16), bf16);
    EXPECT_TRUE(out.is_clean_outside());
  }
}

TEST(ProductPlan, DividesTheLastRoundWhereItGains) {
  const auto plan = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return plan_product_on_gpu({.m = m, .n = n, .k = k, .processors = 132, .may_divide_tail = true}, bf16,
                               {});
  };
  const ProductPlan divided = plan(2560, 4096, 7168);
  EXPECT_EQ(divided.tail_splits, 2);
  EXPECT_EQ(divided.whole_tiles, 264);
  EXPECT_EQ(plan(4096, 4096, 4096).tail_splits, 1);
  // Memory bounds products of few rows.
  for (const std::int64_t rows : {1, 16, 64, 128}) {
    EXPECT_EQ(plan(rows, 4096, 4096).tail_splits, 1);
    EXPECT_EQ(plan(rows, 8192, 8192).tail_splits, 1);
    EXPECT_EQ(plan(rows, 28672, 4096).tail_splits, 1);
  }
  EXPECT_EQ(plan(1, 8192, 8192).tiles.m, 16);
  EXPECT_EQ(plan(192, 8192, 8192).tiles.n, 192);
  // A third tile of 128 rows would be half outside, or more.
  for (const std::int64_t rows : {257, 300, 320}) EXPECT_EQ(plan(rows, 4096, 4096).tiles.m, 64) << rows;
  for (const std::int64_t rows : {384, 440}) EXPECT_EQ(plan(rows, 4096, 4096).tiles.m, 128) << rows;
}

// Tiles of 65 to 320 rows that lie along k, as sweeps found them: little of the last tile of rows is outside.
TEST(ProductPlan, FitsTilesToRows) {
  const auto tile = [](std::int64_t m, std::int64_t n, std::int64_t k, bool along_k = true) {
    const ProductProblem problem{.m = m, .n = n, .k = k, .processors = 132, .may_have_any_rows = along_k};
    const GemmTiles tiles = plan_product_on_gpu(problem, bf16, {}).tiles;
    return fmt::format("{}x{}", tiles.m, tiles.n);
  };
  EXPECT_EQ(tile(80, 4096, 14336), "80x64");
  EXPECT_EQ(tile(96, 4096, 14336), "96x64");
  EXPECT_EQ(tile(144, 6144, 4096), "144x64");
  EXPECT_EQ(tile(150, 10240, 8192), "160x128");
  EXPECT_EQ(tile(192, 4096, 4096), "96x64");
  EXPECT_EQ(tile(192, 8192, 8192), "64x192");
  EXPECT_EQ(tile(257, 8192, 8192), "144x128");
  EXPECT_EQ(tile(288, 8192, 8192), "144x128");
  EXPECT_EQ(tile(320, 8192, 8192), "160x128");
  EXPECT_EQ(tile(320, 8192, 8192, false), "128x192");
  EXPECT_EQ(tile(321, 8192, 8192), "128x192");
  EXPECT_EQ(tile(257, 28672, 4096), "136x256");
  EXPECT_EQ(tile(300, 28672, 4096), "152x256");
  EXPECT_EQ(tile(300, 36864, 7168), "152x192");
  EXPECT_EQ(tile(300, 24576, 1536), "152x128");
  // Columns that fill the processors.
  EXPECT_EQ(tile(128, 7168, 18432), "64x112");
  EXPECT_EQ(tile(128, 36864, 7168), "128x144");
  EXPECT_EQ(tile(192, 10240, 8192), "64x240");
  EXPECT_EQ(tile(256, 10240, 8192), "128x160");
  EXPECT_EQ(tile(512, 7168, 16384), "128x224");
}

// Products by multiply-add: threads with whole blocks of rows and columns, and tiles that have none.
class PlainGemm : public testing::TestWithParam<GemmTiles> {};

TEST_P(PlainGemm, AgreesWithTheFormula) {
  const GemmTiles& tiles = GetParam();
  for (int layout = 0; layout < 4; ++layout) {
    const bool ta = layout % 2 != 0, tb = layout / 2 != 0;
    const Planted a(matrix(0, 70, 52, ta, f32, 1));
    const Tensor b = matrix(0, 52, 76, tb, f32, 2);
    Gemm options{.transpose_a = ta, .transpose_b = tb, .tiles = tiles};
    const Tensor exact = by_formula(a.inside, b, options);
    options.target = tiles.m % 3 == 0 ? Target::emulated() : Target::emulated_sm90();
    expect_close("out", gemm(a.inside, b, options), exact, exact, f32);
  }
}

// Tiles of four warp groups' rows, and of columns that are no power of two.
TEST(Gemm, WideTilesAgreeWithTheFormula) {
  const Tensor a = matrix(0, 270, 136, false, bf16, 1), b = matrix(0, 136, 150, true, bf16, 2);
  // Rows that are no multiple of 64 are the columns of a product with swapped operands.
  for (const GemmTiles& tiles :
       {GemmTiles{256, 144, 64, 1}, GemmTiles{128, 128, 64, 1}, GemmTiles{160, 128, 64, 1},
        GemmTiles{80, 64, 64, 2}, GemmTiles{96, 256, 64, 1}, GemmTiles{208, 64, 64, 1}}) {
    const Gemm options{.transpose_b = true, .tiles = tiles, .target = Target::emulated_sm90()};
    const Tensor exact = by_formula(a, b, options);
    expect_close("out", gemm(a, b, options), exact, exact.to(bf16), bf16);
  }
}

constexpr GemmTiles plain_tiles[] = {
    {128, 64, 16, 1}, {64, 64, 16, 1}, {16, 64, 32, 1}, {48, 40, 12, 1}, {33, 24, 20, 1}};
INSTANTIATE_TEST_SUITE_P(Table, PlainGemm, testing::ValuesIn(plain_tiles), [](auto& info) {
  return fmt::format("{}x{}x{}", info.param.m, info.param.n, info.param.k);
});

// What the plan of a GPU splits, and where it takes tiles of few rows or columns.
struct Narrow {
  std::int64_t m, n, k;
  bool tb;
};

class GemmNarrow : public testing::TestWithParam<Narrow> {};

TEST_P(GemmNarrow, AgreesWithTheFormula) {
  const Narrow& row = GetParam();
  const Tensor a = matrix(0, row.m, row.k, false, bf16, 1), b = matrix(0, row.k, row.n, row.tb, bf16, 2);
  Gemm options{.transpose_b = row.tb, .out_dtype = f32};
  const Tensor exact = by_formula(a, b, options);
  options.target = Target::emulated_sm90();
  const Tensor out = gemm(a, b, options);
  expect_close("out", out, exact, exact, f32);
  EXPECT_TRUE(equal(out, gemm(a, b, options)));
}

constexpr Narrow narrow_table[] = {{1, 70, 1030, false}, {70, 1, 1030, false}, {65, 5, 2048, true},
                                   {5, 65, 2048, true},  {1, 1, 4096, false},  {130, 72, 512, true}};
INSTANTIATE_TEST_SUITE_P(Table, GemmNarrow, testing::ValuesIn(narrow_table), [](auto& info) {
  return fmt::format("{}x{}x{}", info.param.m, info.param.n, info.param.k);
});

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

// The form of all plans: the first of the best, or of all where none fits.
TEST(Plans, TakeTheBestCandidate) {
  Candidates<int, 4> candidates{3, 1, 2};
  candidates.add(-1);
  EXPECT_EQ(best_of(candidates, [](int x) { return x < 2 ? never : static_cast<double>(x % 2); }), 2);
  EXPECT_EQ(best_of(candidates, [](int x) { return x * x == 1 ? 0.0 : 1.0; }), 1);
  EXPECT_EQ(best_of(candidates, [](int) { return never; }), 3);
  EXPECT_THROW(candidates.add(5), std::out_of_range);
}

TEST(Gemm, PlansFitTheCache) {
  for (std::int64_t m : {1, 16, 100, 1024, 4096})
    for (std::int64_t n : {1, 64, 1000, 4096}) {
      const ProductProblem problem{1, m, n, 1024};
      EXPECT_TRUE(std::isfinite(estimate(problem, plan_product(problem, {}).tiles)));
    }
  EXPECT_EQ(plan_product({1, 16, 16, 16}, {}).tiles.m, 32);
  EXPECT_EQ(plan_product({1, 4096, 4096, 4096}, {}).tiles.m, 256);
  EXPECT_EQ(plan_product({1, 100, 100, 100}, {.m = 48}).tiles.m, 48);
}

// Layers of models, long sums and squares on 132 processors, as a sweep on an H200 found them.
TEST(Gemm, PlansOfAGpu) {
  struct Planned {
    std::int64_t m, n, k;
    ProductPlan plan;
  };
  constexpr Planned table[] = {
      {1, 2112, 7168, {{16, 64, 128, 1}, 10}},    {16, 24576, 1536, {{16, 64, 128, 1}}},
      {4096, 16, 4096, {{64, 16, 128, 1}, 10}},   {64, 4096, 4096, {{64, 32, 128, 1}, 9}},
      {128, 4096, 14336, {{64, 64, 128, 1}, 6}},  {256, 6144, 4096, {{128, 96, 64, 1}, 8}},
      {256, 7168, 2048, {{128, 128, 64, 1}, 6}},  {256, 4096, 14336, {{128, 128, 64, 2}, 6}},
      {192, 6144, 4096, {{64, 192, 64, 1}, 6}},   {192, 28672, 4096, {{128, 256, 64, 1}}},
      {192, 24576, 1536, {{128, 128, 64, 1}, 6}}, {512, 4096, 4096, {{128, 128, 64, 1}, 6}},
      {256, 18432, 7168, {{256, 144, 64, 1}}},    {512, 8192, 8192, {{128, 256, 64, 1}}},
      {512, 512, 16384, {{128, 128, 64, 8}, 6}},  {4096, 4096, 4096, {{128, 256, 64, 1}}},
      {8192, 8192, 8192, {{128, 256, 64, 1}}},    {192, 4096, 4096, {{64, 128, 64, 1}, 8}},
  };
  const auto text = [](const ProductPlan& p) {
    return fmt::format("{}x{}x{}/{}, {} stages", p.tiles.m, p.tiles.n, p.tiles.k, p.tiles.splits,
                       p.stages.value_or(0));
  };
  for (const Planned& row : table) {
    const ProductProblem problem{1, row.m, row.n, row.k, 132};
    EXPECT_EQ(text(plan_product_on_gpu(problem, bf16, {})), text(row.plan)) << row.m << ' ' << row.n;
    for (DType type : {f32, f16, e4m3}) {
      const ProductPlan plan = plan_product_on_gpu(problem, type, {});
      const GemmTiles tiles = plan.tiles;
      const std::optional<int> stages = plan.stages;
      EXPECT_LE((tiles.m + tiles.n) * tiles.k * type.bits() / 8 * stages.value_or(2), 226 << 10);
      EXPECT_LE(tiles.splits, (row.k + tiles.k - 1) / tiles.k);
    }
    const GemmTiles given = plan_product_on_gpu(problem, bf16, {.n = 96, .splits = 5}).tiles;
    EXPECT_EQ(given.n, 96);
    EXPECT_EQ(given.splits, 5);
  }
}

TEST(Gemm, RefusesWrongCalls) {
  const Tensor a = Tensor::zeros({4, 6}, f32), b = Tensor::zeros({6, 8}, f32);
  auto call = [](const TensorRef& x, const TensorRef& y, Gemm options = {}) {
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
  expect_refusal(call(a, b, {.out_dtype = i32}),
                 "argument 'out_dtype': expected f32, f16, bf16, e4m3 or e5m2");
  expect_refusal(call(a, b, {.out = Tensor::zeros({8, 4}, f32)}),
                 "argument 'out': expected [batch, m, n] = [4, 8]");
  expect_refusal(call(a, b, {.tiles = {-3, 0, 0}}), "argument 'tile_m': expected extents from 1 to 4096");
  expect_refusal(call(a, b, {.tiles = {.splits = 33}}), "argument 'splits': expected 1 to 32 splits");
  expect_refusal(call(a, b, {.tiles = {.splits = -1}}), "argument 'splits': expected 1 to 32 splits");
  const Tensor wide = Tensor::zeros({8, 12}, f32);
  expect_refusal(call(wide.slice(0, 0, 8, 2).slice(1, 0, 12, 2), b), "stride 1 along rows or columns");
}

}  // namespace gemm_test
}  // namespace tegula::ops

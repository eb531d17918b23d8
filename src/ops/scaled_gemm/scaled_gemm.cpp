#include "tegula/ops/scaled_gemm.hpp"

#include "ops/pieces/product_plan.hpp"
#include "ops/products/low_bits.hpp"
#include "ops/products/scaled_products.hpp"
#include "ops/schema/functions.hpp"
#include "ops/schema/schema.hpp"
#include "ops/schema/sums_of_8_bits.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct Instance {
  DType type = e4m3, compute = f32, scale = f32, out = bf16;
  bool turned_a = false, turned_b = false;                    // [k, rows] in memory
  bool scales_by_block_a = false, scales_by_block_b = false;  // [blocks, rows] in memory
  bool turns_scales = false;                                  // of a, in a first grid
  bool converts = false;                                      // both matrices, in first grids
  std::optional<DType> c = {};
  int rows_b = 128;
  int m = 64, n = 64;
  auto fields() const {
    return std::tuple(type, compute, labelled("s", scale), labelled("out", out), labelled("ta", turned_a),
                      labelled("tb", turned_b), labelled("sa", scales_by_block_a),
                      labelled("sb", scales_by_block_b), labelled("turned_scales", turns_scales),
                      labelled("converted", converts), labelled("c", c), labelled("rows", rows_b),
                      joined("t", m, n));
  }
};

ScaledOperand operand(const char* values, const char* scales, const Expr& rows, const Expr& k,
                      const Instance& c, bool turned, bool by_block, int rows_of_scale) {
  Expr blocks = ceildiv(k, scaled_block);
  Expr scale_rows = rows_of_scale == 1 ? rows : ceildiv(rows, rows_of_scale);
  return {
      turned ? input(values, {k, rows}, c.type) : input(values, {rows, k}, c.type),
      by_block ? input(scales, {blocks, scale_rows}, c.scale) : input(scales, {scale_rows, blocks}, c.scale),
      turned ? Along::rows : Along::k, by_block ? Along::rows : Along::k, rows_of_scale};
}

// Those of a block side by side, as boxes of the copy engine are.
Tensor turned_scales(const Tensor& scales) {
  constexpr int side = 32;
  const int piece = bytes_of_piece / scales.type().bytes();
  Expr rows = scales.extent(0), blocks = scales.extent(1);
  Tensor result = workspace("scales_of_blocks", {blocks, ceildiv(rows, piece) * piece}, scales.type());
  grid(ceildiv(rows, side), ceildiv(blocks, side), [&](Index x, Index y) {
    Fragment tile = load(scales.at(x * side, y * side), {side, side});
    copy(tile.T(), result.at(y * side, x * side));
  });
  return result;
}

// The matrix in another type.
Tensor converted(const Tensor& matrix, const char* name, DType type) {
  constexpr int rows = 16, columns = 512;
  Expr m = matrix.extent(0), n = matrix.extent(1);
  Tensor result = workspace(name, {m, n}, type);
  grid(ceildiv(n, columns), ceildiv(m, rows), [&](Index x, Index y) {
    copy(load(matrix.at(y * rows, x * columns), {rows, columns}, type), result.at(y * rows, x * columns));
  });
  return result;
}

Kernel program(const Instance& t) {
  return kernel(instance_name("scaled_gemm", t), [&] {
    Dim m("m"), n("n"), k("k");
    ScaledOperand a = operand("a", "scale_a", m, k, t, t.turned_a, t.scales_by_block_a, 1);
    if (t.turns_scales) a.scales = turned_scales(a.scales), a.scales_along = Along::rows;
    ScaledOperand b = operand("b", "scale_b", n, k, t, t.turned_b, t.scales_by_block_b, t.rows_b);
    std::optional<Tensor> c;
    if (t.c) c.emplace(input("c", {m, n}, *t.c));
    Tensor out = output("out", {m, n}, t.out);
    if (t.converts)
      a.values = converted(a.values, "converted_a", t.compute),
      b.values = converted(b.values, "converted_b", t.compute);
    grid(ceildiv(n, t.n), ceildiv(m, t.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Expr row = y * t.m, column = x * t.n;
      ScaledSums sums = scaled_sums(t.m, t.n, true);
      if (c)
        for (auto& [first, sum] : sums) copy(c->at(row + first, column), sum);
      multiply_scaled(sums, a, b, row, column, k, t.compute);
      for (const ScaledRows& own : sums) sums.store(own, out.at(row + own.first, column));
    });
  });
}

// Rows from which on tiles read a converted matrix often enough; bf16 has all numbers of 8 bits. Found on
// CPUs.
constexpr int rows_worth_converting_on_cpu = 128;

int rows_of_cpu_tile(std::int64_t m) {
  if (m >= rows_worth_converting_on_cpu) return 128;
  for (const int few : {16, 32})  // what is missing is multiplied, too
    if (m <= few) return few;
  return 64;
}

// Smaller tiles where threads would wait for the last one.
ProductTile plan_tile_on_cpu(const Bound<ScaledGemm>& c) {
  const ProductTile usual{rows_of_cpu_tile(c.dim("m")), c.dim("n") <= 64 ? 64 : 128};
  const int threads = planned_threads(c.call()), rows = std::min(usual.m, 64);
  if (threads == 1) return usual;
  const ProductProblem problem{.m = c.dim("m"), .n = c.dim("n"), .k = c.dim("k"), .threads = threads};
  return best_of(Candidates<ProductTile, 3>{usual, {rows, usual.n}, {rows, 64}}, [&](const ProductTile& t) {
    return estimate(problem, {t.m, t.n, scaled_block, 1});
  });
}

ProductTile plan_tile(const Bound<ScaledGemm>& c, DType compute) {
  if (!c.on_gpu()) return plan_tile_on_cpu(c);
  return best_tile(scaled_tiles(compute.bits() == 8 && c->rows_b == scaled_block),
                   {1, c.dim("m"), c.dim("n"), c.dim("k")}, 1, planned_gpu_processors(c.call()));
}

// Products by pairs of bf16 are as fast as a CPU converts numbers of 8 bits to them.
void note_conversion(const Bound<ScaledGemm>& c, Launch& launch) {
  const std::int64_t rows = c.dim("m");
  if (c.on_gpu() || multiplied_type(bf16, false) != bf16 || rows > rows_worth_converting_on_cpu) return;
  launch.note([&] {
    return fmt::format(
        "plan: converting a number of b to bf16 takes as long as its products with {} row{} or longer; more "
        "rows in a call share it",
        rows, rows == 1 ? "" : "s");
  });
}

void run(const Bound<ScaledGemm>& c, Launch& launch) {
  note_conversion(c, launch);
  Instance t{.type = c.type("a"), .scale = c.type("scale_a"), .out = c.type("out")};
  t.turned_a = lies_along_rows(c["a"]), t.turned_b = lies_along_rows(c["b"]);
  t.scales_by_block_a = lies_along_rows(c["scale_a"]), t.scales_by_block_b = lies_along_rows(c["scale_b"]);
  t.converts = !c.on_gpu() && c.dim("m") >= rows_worth_converting_on_cpu;
  t.compute = t.converts ? bf16 : product_tile_type(c.call(), t.type, !t.turned_a && !t.turned_b);
  t.c = c.type_if("c"), t.rows_b = c->rows_b;
  const ProductTile tile = plan_tile(c, t.compute);
  t.m = tile.m, t.n = tile.n;
  t.turns_scales = t.m > most_rows_of_sums && !t.scales_by_block_a;
  launch(t, program,
         {{"a", turned(c["a"], t.turned_a)},
          {"b", turned(c["b"], t.turned_b)},
          {"scale_a", turned(c["scale_a"], t.scales_by_block_a)},
          {"scale_b", turned(c["scale_b"], t.scales_by_block_b)}});
}

// Each element is computed from a row of a and one of b, block by block.
void formula(const Bound<ScaledGemm>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), n = c.dim("n"), k = c.dim("k");
  const auto a = exact.array("a"), b = exact.array("b"), out = exact.array("out");
  const std::vector<double> of_a = scales_of(exact["scale_a"]), of_b = scales_of(exact["scale_b"]);
  const double* added = exact.data_if("c");
  const std::int64_t blocks = c.dim("blocks");
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = added ? added[i * n + j] : 0;
      for (std::int64_t g = 0; g < blocks; ++g) {
        const std::int64_t first = g * scaled_block, count = std::min<std::int64_t>(scaled_block, k - first);
        const double *row = &a(i, first), *column = &b(j, first);
        const double partial =
            sum_of_8_bits(count, exact.steps() != f64, [&](std::int64_t e) { return row[e] * column[e]; });
        sum += partial * of_a[i * blocks + g] * of_b[j / c->rows_b * blocks + g];
      }
      out(i, j) = sum;
    }
}

std::vector<CallMap> scaled_maps() {
  const std::string base = "m=4096 n=4096 k=4096 blocks=32";
  return {
      {"rows",
       base,
       {"m=1", "m=16", "m=24", "m=64", "m=96", "m=128", "m=192", "m=256", "m=384", "m=512", "m=1024",
        "m=2048", "m=4096"},
       {"", "n=14336", "k=14336 blocks=112", "n=1024", "n=7168 k=2048 blocks=16", "rows_b=1", "scale_a:u8"}},
      {"odd",
       base,
       {"k=4032", "k=4080", "k=4095", "k=4096", "k=4097 blocks=33", "k=4112 blocks=33"},
       {"", "n=4095", "n=4097", "m=4097", "e5m2", "c:f32", "out_dtype=f32", "rows_b=1"}},
      {"strides",
       base + " e4m3",
       {"strides=plain", "strides=sliced", "strides=padded", "strides=odd", "strides=transposed"},
       {"", "m=16", "m=128", "n=4097", "rows_b=1"}}};
}

const OptionRule one_or_block{1, 128, false, "128 or 1", "give scales of single rows, or of 128"};

}  // namespace

const OperatorSchema& scaled_gemm_schema() {
  static const OperatorSchema table =
      Schema<ScaledGemm>("scaled_gemm", "product of 8-bit floats with scales for every 128 of k")
          .in(&ScaledGemm::a, "a", "m k", one_of({e4m3, e5m2}), "left matrix")
          .in(&ScaledGemm::b, "b", "n k", same_as("a"), "right matrix, transposed")
          .in(&ScaledGemm::scale_a, "scale_a", "m blocks", one_of({f32, u8}),
              "scales of each row for every 128 elements of k; u8 means e8m0")
          .range("120", "135")
          .in(&ScaledGemm::scale_b, "scale_b", "(n+rows_b-1)/rows_b blocks", same_as("scale_a"),
              "scales of every rows_b rows for every 128 elements of k")
          .range("120", "135")
          .in(&ScaledGemm::c, "c", "m n", floats, "added")
          .option(&ScaledGemm::rows_b, "rows_b", "rows of b that share a scale", one_or_block)
          .option(&ScaledGemm::out_dtype, "out_dtype", "dtype of the result", result_dtype)
          .out(&ScaledGemm::out, "out", "m n", chosen_by("out_dtype", {bf16, f16, f32}, "a", bf16),
               "c + the scaled product")
          .require("scale_a", "blocks == ceildiv(k,128)", "a scale for each 128 of k", "scale blocks of 128")
          .require(
              "rows_b", [](const Bound<ScaledGemm>& c) { return c->rows_b == 1 || c->rows_b == 128; },
              "128 or 1", "give scales of single rows, or of 128")
          .source("DeepSeek-AI 2024, DeepSeek-V3 Technical Report; DeepGEMM")
          .no_gradient("its operands are quantised")
          .flops("2*m*n*k")
          .examples({{"ragged", "m=37 n=140 k=200 blocks=2"},
                     {"powers", "m=20 n=70 k=128 blocks=1 scale_a:u8 out_dtype=f32"},
                     {"added", "m=65 n=72 k=256 blocks=2 c:f32 out_dtype=f32"},
                     {"more_rows", "m=130 n=150 k=200 blocks=2 out_dtype=f32"}})
          .measured({{"4096x7168x16384", "m=4096 n=7168 k=16384 blocks=128"},
                     {"4096x4096x7168", "m=4096 n=4096 k=7168 blocks=56"},
                     {"64x4096x7168", "m=64 n=4096 k=7168 blocks=56"}})
          .maps(scaled_maps())
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops

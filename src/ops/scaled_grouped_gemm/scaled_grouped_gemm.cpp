#include "tegula/ops/scaled_grouped_gemm.hpp"

#include "ops/products/group_tiles.hpp"
#include "ops/products/low_bits.hpp"
#include "ops/products/scaled_products.hpp"
#include "ops/schema/sums_of_8_bits.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct Instance {
  DType type = e4m3, compute = f32, scale = f32, out = bf16;
  bool offsets = false, counts = false;
  bool by_block_a = false, by_block_b = false;  // scales are [blocks, rows] in memory
  int rows_b = 128, m = 64, n = 64;
  auto fields() const {
    return std::tuple(type, compute, labelled("s", scale), labelled("out", out), labelled("offsets", offsets),
                      labelled("counts", counts), labelled("sa", by_block_a), labelled("sb", by_block_b),
                      labelled("rows", rows_b), joined("t", m, n));
  }
};

// `before`, then two extents, in the order in which they lie.
Tensor scales(const char* name, Extents before, const Expr& rows, const Expr& blocks, bool by_block,
              DType type) {
  before.push_back(by_block ? blocks : rows);
  before.push_back(by_block ? rows : blocks);
  return input(name, before, type);
}

struct Program {
  const Instance& c;
  Dim m{"m"}, n{"n"}, k{"k"}, groups{"groups"};
  Expr blocks = ceildiv(k, scaled_block), scale_rows = c.rows_b == 1 ? Expr(n) : ceildiv(n, c.rows_b);
  Tensor a = c.offsets ? input("a", {m, k}, c.type) : input("a", {groups, m, k}, c.type);
  Tensor b = input("b", {groups, n, k}, c.type);
  Tensor scale_a = c.offsets ? scales("scale_a", {}, m, blocks, c.by_block_a, c.scale)
                             : scales("scale_a", {groups}, m, blocks, c.by_block_a, c.scale);
  Tensor scale_b = scales("scale_b", {groups}, scale_rows, blocks, c.by_block_b, c.scale);

  Fragment multiply(const Tensor& own_a, const Tensor& own_scales, const Expr& group, const Expr& row,
                    const Expr& column) const {
    Fragment sum({c.m, c.n}, f32, 0);
    const ScaledOperand left{own_a, own_scales, Along::k, c.by_block_a ? Along::rows : Along::k, 1};
    const ScaledOperand right{b.slice(group), scale_b.slice(group), Along::k,
                              c.by_block_b ? Along::rows : Along::k, c.rows_b};
    multiply_scaled(sum, left, right, row, column, k, c.compute);
    return sum;
  }

  void contiguous() const {
    Tensor offsets = input("offsets", {groups + 1}, i32), out = output("out", {m, n}, c.out);
    const GroupTiles tiles(offsets, m, scalar("max_rows", i32), c.m);
    grid(ceildiv(n, c.n), tiles.count(), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Expr group = tiles.group(y);
      exit_if(group < 0);
      Expr row = tiles.row(y);
      const Range rows = tiles.rows(group);
      Tensor own_scales = c.by_block_a ? scale_a.slice(all, rows) : scale_a.slice(rows);
      Fragment sum = multiply(a.slice(rows), own_scales, group, row, x * c.n);
      copy(sum, out.slice(rows).at(row, x * c.n));
    });
  }

  void with_room() const {
    Tensor counts = c.counts ? input("counts", {groups}, i32) : a;
    Tensor out = output("out", {groups, m, n}, c.out);
    grid(ceildiv(n, c.n), ceildiv(m, c.m), groups, {.order = Order::grouped(8)},
         [&](Index x, Index y, Index group) {
           Expr count = c.counts ? Expr(counts(group)) : Expr(m);
           if (c.counts) assert_that(count >= 0 && count <= m, "a group counts no more rows than it has");
           exit_if(y * c.m >= count);
           const Range rows = range(0, count);
           Tensor own_scales = c.by_block_a ? scale_a.slice(group, all, rows) : scale_a.slice(group, rows);
           Fragment sum = multiply(a.slice(group, rows), own_scales, group, y * c.m, x * c.n);
           copy(sum, out.slice(group, rows).at(y * c.m, x * c.n));
         });
  }
};

Kernel program(const Instance& c) {
  return kernel(instance_name("scaled_grouped_gemm", c), [&] {
    const Program own{c};
    c.offsets ? own.contiguous() : own.with_room();
  });
}

void run(const Bound<ScaledGroupedGemm>& c, Launch& launch) {
  Instance t{.type = c.type("a"), .scale = c.type("scale_a"), .out = c.type("out")};
  t.compute = scaled_tile_type(c.call(), t.type, true);
  t.offsets = c.has("offsets"), t.counts = c.has("counts"), t.rows_b = c->rows_b;
  t.by_block_a = lies_along_rows(c["scale_a"]), t.by_block_b = lies_along_rows(c["scale_b"]);
  const GroupedRows rows{c.dim("groups"), c.dim("m"), c->max_rows, t.offsets};
  if (c.on_gpu()) {
    const ProductTile tile =
        best_tile(gpu_table.scaled, {c.dim("groups"), rows.usual(), c.dim("n"), c.dim("k")}, 1,
                  planned_gpu_processors(c.call()));
    t.m = tile.m, t.n = tile.n;
  } else {
    t.m = rows.usual() <= 16 ? 16 : 64;
  }
  launch(t, program,
         {{"scale_a", turned(c["scale_a"], t.by_block_a)}, {"scale_b", turned(c["scale_b"], t.by_block_b)}});
}

void formula(const Bound<ScaledGroupedGemm>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), n = c.dim("n"), k = c.dim("k"), groups = c.dim("groups");
  const std::int64_t blocks = c.dim("blocks"), scale_rows = (n + c->rows_b - 1) / c->rows_b;
  const auto b = exact.array("b");
  const double* a = exact.data("a");
  double* out = exact.data("out");
  const std::vector<double> of_a = scales_of(exact["scale_a"]), of_b = scales_of(exact["scale_b"]);
  const auto* offsets = c.has("offsets") ? exact["offsets"].data_as<std::int32_t>() : nullptr;
  const auto* counts = c.has("counts") ? exact["counts"].data_as<std::int32_t>() : nullptr;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = offsets ? offsets[g] : g * m, rows = offsets ? offsets[g + 1] - first : m;
    for (std::int64_t i = first; i < first + rows; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t block = 0; block < blocks; ++block) {
          const std::int64_t e = block * scaled_block, count = std::min<std::int64_t>(scaled_block, k - e);
          const double *row = a + i * k + e, *column = &b(g, j, e);
          const double part = sum_of_8_bits(count, exact.steps() != f64,
                                            [&](std::int64_t at) { return row[at] * column[at]; });
          sum += part * of_a[i * blocks + block] * of_b[(g * scale_rows + j / c->rows_b) * blocks + block];
        }
        out[i * n + j] = counts && i - first >= counts[g] ? Exact::unspecified() : sum;
      }
  }
}

}  // namespace

const OperatorSchema& scaled_grouped_gemm_schema() {
  using Op = ScaledGroupedGemm;
  static const OperatorSchema table =
      Schema<Op>("scaled_grouped_gemm", "rows of each group times its matrix, in 8-bit floats with scales")
          .in(&Op::a, "a", "offsets ? m k : groups m k", one_of({e4m3, e5m2}), "rows of all groups")
          .in(&Op::b, "b", "groups n k", same_as("a"), "the matrices of the groups, transposed")
          .in(&Op::scale_a, "scale_a", "offsets ? m blocks : groups m blocks", one_of({f32, u8}),
              "factors of every row in every 128 of k; u8 is e8m0")
          .range("120", "135")
          .in(&Op::scale_b, "scale_b", "groups (n+rows_b-1)/rows_b blocks", same_as("scale_a"),
              "factors of every rows_b rows in every 128 of k")
          .range("120", "135")
          .in(&Op::offsets, "offsets", "groups+1", index,
              "where the rows of every group begin, and the last one's end")
          .converts()
          .packs("m", "max_rows", "longest")
          .in(&Op::counts, "counts", "groups", index, "rows of every group that count")
          .range("0", "m+1")
          .converts()
          .option(&Op::rows_b, "rows_b", "rows of b that share a scale",
                  between(1, 128, "128 or 1", "give scales of single rows, or of 128"))
          .option(&Op::max_rows, "max_rows", "a promise: the most rows in a group",
                  between(0, 1 << 28, "a number of rows, or 0 where it is not known", "leave it out"))
          .option(&Op::out_dtype, "out_dtype", "dtype of the result",
                  {{}, {}, false, "f32, f16 or bf16", "convert the result"})
          .out(&Op::out, "out", "offsets ? m n : groups m n",
               chosen_by("out_dtype", {bf16, f16, f32}, "a", bf16), "the scaled products")
          .require("scale_a", "blocks == ceildiv(k,128)", "a scale for each 128 of k", "scale blocks of 128")
          .require(
              "rows_b", [](const Bound<Op>& c) { return c->rows_b == 1 || c->rows_b == 128; }, "128 or 1",
              "give scales of single rows, or of 128")
          .require(
              "counts", [](const Bound<Op>& c) { return !(c.has("counts") && c.has("offsets")); },
              "offsets or counts", "leave one of them out")
          .source("DeepSeek-AI 2024, DeepSeek-V3 Technical Report; DeepGEMM")
          .no_gradient("its operands are quantised")
          .flops("offsets ? 2*m*n*k : 2*groups*m*n*k")
          .examples({{"ragged", "groups=3 m=70 k=140 n=72 blocks=2 offsets"},
                     {"masked", "groups=3 m=37 k=256 n=136 blocks=2 counts out_dtype=f32"}})
          .measured({{"4x8192", "groups=4 m=32768 k=7168 n=4096 blocks=56 offsets"},
                     {"16_ragged", "groups=16 m=16384 k=4096 n=2048 blocks=32 offsets"},
                     {"8x1024_masked", "groups=8 m=1024 k=7168 n=4096 blocks=56 counts"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops

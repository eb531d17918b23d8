#include "tegula/ops/grouped_gemm.hpp"

#include "ops/products/group_tiles.hpp"
#include "ops/products/product_tiles.hpp"
#include "ops/schema/functions.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct Instance {
  DType type = f32, compute = f32, out = f32;
  bool offsets = false, counts = false, transpose_b = false;
  int m = 64, n = 64, k = 64;
  auto fields() const {
    return std::tuple(type, compute, labelled("out", out), labelled("offsets", offsets),
                      labelled("counts", counts), labelled("tb", transpose_b), joined("t", m, n), k);
  }
};

struct Program {
  const Instance& c;
  Dim m{"m"}, n{"n"}, k{"k"}, groups{"groups"};
  Tensor a = c.offsets ? input("a", {m, k}, c.type) : input("a", {groups, m, k}, c.type);
  Tensor b = c.transpose_b ? input("b", {groups, n, k}, c.type) : input("b", {groups, k, n}, c.type);

  // The tile of a group's product with the first row `row`.
  Fragment multiply(const Tensor& own_a, const Tensor& own_b, const Expr& row, const Expr& column) const {
    Fragment sum({c.m, c.n}, f32, 0);
    pipelined(ceildiv(k, c.k), {.stages = 4}, [&](Index step) {
      Expr inner = step * c.k;
      Shared a_tile({c.m, c.k}, c.compute),
          b_tile({c.transpose_b ? c.n : c.k, c.transpose_b ? c.k : c.n}, c.compute);
      copy(own_a.at(row, inner), a_tile);
      copy(c.transpose_b ? own_b.at(column, inner) : own_b.at(inner, column), b_tile);
      if (c.transpose_b)
        gemm(a_tile, b_tile.T(), sum);
      else
        gemm(a_tile, b_tile, sum);
    });
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
      Fragment sum = multiply(a.slice(rows), b.slice(group), row, x * c.n);
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
           Fragment sum = multiply(a.slice(group, rows), b.slice(group), y * c.m, x * c.n);
           copy(sum, out.slice(group, rows).at(y * c.m, x * c.n));
         });
  }
};

Kernel program(const Instance& c) {
  return kernel(instance_name("grouped_gemm", c), [&] {
    const Program own{c};
    c.offsets ? own.contiguous() : own.with_room();
  });
}

Instance plan(const Bound<GroupedGemm>& c) {
  Instance t{.type = c.type("a"), .compute = multiplied_type(c.type("a"), c.on_gpu()), .out = c.type("out")};
  t.offsets = c.has("offsets"), t.counts = c.has("counts"), t.transpose_b = c->transpose_b;
  const std::int64_t rows = GroupedRows{c.dim("groups"), c.dim("m"), c->max_rows, t.offsets}.usual();
  if (!c.on_gpu()) {
    t.m = rows <= 16 ? 16 : 64, t.n = c.dim("n") <= 64 ? 64 : 128;
    return t;
  }
  const bool is_16_bits = t.compute.bits() == 16;
  const auto tiles = is_16_bits ? std::span<const TileCost>(gpu_table.of_16_bits)
                                : std::span<const TileCost>(gpu_table.of_32_bits);
  const ProductTile tile = best_tile(tiles, {c.dim("groups"), rows, c.dim("n"), c.dim("k")},
                                     t.compute.bytes(), planned_gpu_processors(c.call()));
  t.m = tile.m, t.n = tile.n, t.k = is_16_bits ? 64 : 32;
  return t;
}

void formula(const Bound<GroupedGemm>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), n = c.dim("n"), k = c.dim("k"), groups = c.dim("groups");
  const auto b = exact.array("b");
  const double* a = exact.data("a");
  double* out = exact.data("out");
  const auto* offsets = c.has("offsets") ? exact["offsets"].data_as<std::int32_t>() : nullptr;
  const auto* counts = c.has("counts") ? exact["counts"].data_as<std::int32_t>() : nullptr;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = offsets ? offsets[g] : g * m, rows = offsets ? offsets[g + 1] - first : m;
    for (std::int64_t i = first; i < first + rows; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t e = 0; e < k; ++e) sum += a[i * k + e] * (c->transpose_b ? b(g, j, e) : b(g, e, j));
        out[i * n + j] = counts && i - first >= counts[g] ? Exact::unspecified() : sum;
      }
  }
}

// The gradient of the matrices: sums over the rows of groups.
struct WeightsInstance {
  DType type = f32, compute = f32, out = f32;
  std::optional<DType> c = {};
  int m = 64, n = 64, k = 64;
  auto fields() const {
    return std::tuple(type, compute, labelled("out", out), labelled("c", c), joined("t", m, n), k);
  }
};

Kernel weights_program(const WeightsInstance& t) {
  return kernel(instance_name("grouped_gemm_weights", t), [&] {
    Dim m("m"), n("n"), k("k"), groups("groups");
    Tensor a = input("a", {m, k}, t.type), dout = input("dout", {m, n}, t.type);
    Tensor offsets = input("offsets", {groups + 1}, i32), out = output("out", {groups, k, n}, t.out);
    std::optional<Tensor> c;
    if (t.c) c.emplace(input("c", {groups, k, n}, *t.c));
    Expr most = scalar("max_rows", i32);
    grid(ceildiv(n, t.n), ceildiv(k, t.m), groups, {.order = Order::grouped(8)},
         [&](Index x, Index y, Index group) {
           const Range rows = range(offsets(group), offsets(group + 1));
           assert_that(rows.begin >= 0 && rows.begin <= rows.end && rows.end <= m &&
                           (most == 0 || rows.end - rows.begin <= most),
                       "offsets do not fall, end with the number of rows, and keep max_rows");
           Tensor own_a = a.slice(rows), own_dout = dout.slice(rows);
           Fragment sum({t.m, t.n}, f32, 0);
           if (c) copy(c->slice(group).at(y * t.m, x * t.n), sum);
           pipelined(ceildiv(rows.end - rows.begin, t.k), {.stages = 4}, [&](Index step) {
             Shared a_tile({t.k, t.m}, t.compute), d_tile({t.k, t.n}, t.compute);
             copy(own_a.at(step * t.k, y * t.m), a_tile);
             copy(own_dout.at(step * t.k, x * t.n), d_tile);
             gemm(a_tile.T(), d_tile, sum);
           });
           copy(sum, out.slice(group).at(y * t.m, x * t.n));
         });
  });
}

WeightsInstance weights_plan(const Bound<GroupedGemmWeights>& c) {
  WeightsInstance t{
      .type = c.type("a"), .compute = multiplied_type(c.type("a"), c.on_gpu()), .out = c.type("out")};
  t.c = c.type_if("c");
  if (!c.on_gpu()) return t;
  const bool is_16_bits = t.compute.bits() == 16;
  if (!is_16_bits) t.k = 32;
  if (is_16_bits && c.dim("k") > 64 && c.dim("n") > 64) t.m = 128, t.n = c.dim("n") > 128 ? 256 : 128;
  return t;
}

void weights_formula(const Bound<GroupedGemmWeights>& c, Exact& exact) {
  const std::int64_t n = c.dim("n"), k = c.dim("k"), groups = c.dim("groups");
  const auto a = exact.array("a"), dout = exact.array("dout"), out = exact.array("out");
  const double* added = exact.data_if("c");
  const auto* offsets = exact["offsets"].data_as<std::int32_t>();
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = added ? added[(g * k + i) * n + j] : 0;
        for (std::int64_t row = offsets[g]; row < offsets[g + 1]; ++row) sum += a(row, i) * dout(row, j);
        out(g, i, j) = sum;
      }
}

const OptionRule dtype_rule{{}, {}, false, "f32, f16 or bf16", "convert the result"};
const OptionRule promise =
    between(0, 1 << 28, "a number of rows, or 0 where it is not known", "leave it out");

}  // namespace

const OperatorSchema& grouped_gemm_schema() {
  static const OperatorSchema table =
      Schema<GroupedGemm>("grouped_gemm", "rows of each group times its matrix")
          .in(&GroupedGemm::a, "a", "offsets ? m k : groups m k", floats, "rows of all groups")
          .in(&GroupedGemm::b, "b", "transpose_b ? groups n k : groups k n", same_as("a"),
              "the matrices of the groups")
          .remedy("check transpose_b")
          .in(&GroupedGemm::offsets, "offsets", "groups+1", index,
              "where the rows of every group begin, and the last one's end")
          .converts()
          .packs("m", "max_rows", "longest")
          .in(&GroupedGemm::counts, "counts", "groups", index, "rows of every group that count")
          .range("0", "m+1")
          .converts()
          .option(&GroupedGemm::transpose_b, "transpose_b", "b is [groups, n, k]")
          .option(&GroupedGemm::max_rows, "max_rows", "a promise: the most rows in a group", promise)
          .option(&GroupedGemm::out_dtype, "out_dtype", "dtype of the result", dtype_rule)
          .out(&GroupedGemm::out, "out", "offsets ? m n : groups m n",
               chosen_by("out_dtype", floats.types, "a", bf16), "the rows times their matrices")
          .require(
              "counts", [](const Bound<GroupedGemm>& c) { return !(c.has("counts") && c.has("offsets")); },
              "offsets or counts", "leave one of them out")
          .source("Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts")
          .composed_gradient("grouped products")
          .flops("offsets ? 2*m*n*k : 2*groups*m*n*k")
          .examples({{"ragged", "groups=3 m=70 k=40 n=72 offsets"},
                     {"transposed_bf16", "groups=4 m=130 k=72 n=40 offsets bf16 transpose_b out_dtype=f32"},
                     {"masked_f16", "groups=3 m=37 k=64 n=80 counts f16"}})
          .measured({{"4x8192", "groups=4 m=32768 k=7168 n=4096 offsets bf16 transpose_b"},
                     {"16_ragged", "groups=16 m=16384 k=4096 n=2048 offsets bf16 transpose_b"},
                     {"128_experts", "groups=128 m=65536 k=2048 n=768 offsets bf16 transpose_b"},
                     {"8x1024_masked", "groups=8 m=1024 k=7168 n=4096 counts bf16 transpose_b"}})
          .run(plan, program, formula);
  return table;
}

const OperatorSchema& grouped_gemm_weights_schema() {
  static const OperatorSchema table =
      Schema<GroupedGemmWeights>("grouped_gemm_weights", "gradients of the matrices of grouped_gemm")
          .in(&GroupedGemmWeights::a, "a", "m k", floats, "rows of all groups")
          .in(&GroupedGemmWeights::dout, "dout", "m n", same_as("a"), "gradients of the results")
          .in(&GroupedGemmWeights::offsets, "offsets", "groups+1", index,
              "where the rows of every group begin, and the last one's end")
          .converts()
          .packs("m", "max_rows", "longest")
          .in(&GroupedGemmWeights::c, "c", "groups k n", floats, "added")
          .option(&GroupedGemmWeights::max_rows, "max_rows", "a promise: the most rows in a group", promise)
          .option(&GroupedGemmWeights::out_dtype, "out_dtype", "dtype of the result", dtype_rule)
          .out(&GroupedGemmWeights::out, "out", "groups k n",
               chosen_by("out_dtype", {f32, f16, bf16}, "", f32),
               "c + the products over the rows of every group")
          .source("Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts")
          .no_gradient("it is a gradient")
          .flops("2*m*n*k")
          .examples({{"ragged", "groups=3 m=70 k=40 n=72"},
                     {"added_bf16", "groups=2 m=100 k=24 n=136 bf16 c:f32"},
                     {"f16", "groups=4 m=33 k=65 n=20 f16 out_dtype=f16"}})
          .measured({{"8x2048", "groups=8 m=16384 k=4096 n=4096 bf16"}})
          .run(weights_plan, weights_program, weights_formula);
  return table;
}

tegula::Tensor grouped_gemm_weights(const TensorRef& a, const TensorRef& dout, const TensorRef& offsets,
                                    GroupedGemmWeights options) {
  return results_of<tegula::Tensor>(grouped_gemm_weights_schema(), options, {a, dout, offsets});
}

}  // namespace tegula::ops

#include "ops/grouped_gemm/kernel.hpp"

#include "ops/pieces/padding.hpp"
#include "ops/pieces/product_plan.hpp"
#include "ops/products/epilogue.hpp"
#include "ops/products/operand_tile.hpp"
#include "ops/products/product_tiles.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

struct Program {
  const GroupedGemmKernel& c;
  Dim m{"m"}, n{"n"}, k{"k"}, groups{"groups"};
  GroupedWalk walk{c.form, m, groups};
  Tensor a = input("a", walk.extents({m, k}), c.type);
  Tensor b = c.transpose_b ? input("b", {groups, n, k}, c.type) : input("b", {groups, k, n}, c.type);
  Tensor bias = c.bias ? input("bias", {groups, n}, *c.bias) : a;
  Tensor out = output("out", walk.extents({m, n}), c.out);

  // sum += a group's product from its row `row` on.
  void multiply(Fragment& sum, const Tensor& own_a, const Tensor& own_b, const Expr& row,
                const Expr& column) const {
    pipelined(ceildiv(k, c.k), {.stages = 4}, [&](Index step) {
      Expr inner = step * c.k;
      Shared a_tile({c.m, c.k}, c.compute);
      OperandTile b_tile("", c.k, c.n, c.compute, c.transpose_b);
      copy(own_a.at(row, inner), a_tile);
      b_tile.load(own_b, inner, column);
      gemm(a_tile, b_tile.operand(), sum, {.precision = static_cast<lang::Precision>(c.precision)});
    });
  }

  void run() {
    walk.divide(c.m);
    const Tensor read_a = c.padding.a ? padded("padded_a", a) : a,
                 read_b = c.padding.b ? padded("padded_b", b) : b, stored = stored_rows(out, c.padding.out);
    walk.each(ceildiv(n, c.n), [&](const Expr& x, const GroupedTile& tile) {
      Fragment sum({c.m, c.n}, f32, 0);
      multiply(sum, tile.of(read_a), read_b.slice(tile.group), tile.row, x * c.n);
      if (c.bias) add_along(sum, 1, load(bias.slice(tile.group).at(x * c.n), {c.n}, f32));
      copy(sum, tile.of(stored).at(tile.row, x * c.n));
    });
    if (c.padding.out) write_rows(walk, c.m, stored, out);
  }
};

}  // namespace

Kernel grouped_gemm_program(const GroupedGemmKernel& c) {
  return kernel(instance_name("grouped_gemm", c), [&] { Program{c}.run(); });
}

GroupedGemmKernel planned(GroupedGemmKernel t, const GroupedProduct& product, const BoundCall& call) {
  t.compute = multiplied_type(t.type, call.on_gpu());
  if (t.type != f32) t.precision = Precision::ieee;
  if (!call.on_gpu()) {
    // Groups end amid tiles, of which larger ones waste more.
    const ProductProblem problem{.batch = product.groups,
                                 .m = product.rows,
                                 .n = product.n,
                                 .k = product.k,
                                 .threads = planned_threads(call),
                                 .most_rows = 128,
                                 .most_columns = 256};
    const GemmTiles tiles = plan_product(problem, {}).tiles;
    t.m = tiles.m, t.n = tiles.n, t.k = tiles.k;
    return t;
  }
  const bool is_16_bits = t.compute.bits() == 16;
  const auto tiles = is_16_bits                         ? std::span<const TileCost>(gpu_table.of_16_bits)
                     : t.precision == Precision::tf32   ? std::span<const TileCost>(gpu_table.of_tf32)
                     : t.precision == Precision::tf32x3 ? std::span<const TileCost>(gpu_table.of_tf32_x3)
                                                        : std::span<const TileCost>(gpu_table.of_32_bits);
  const ProductTile tile = best_tile(tiles, {product.groups, product.rows, product.n, product.k},
                                     t.compute.bytes(), planned_gpu_processors(call));
  t.m = tile.m, t.n = tile.n, t.k = is_16_bits ? 64 : 32;
  return t;
}

GroupedGemmKernel planned(GroupedGemmKernel kernel, const GroupedProduct& product, Launch& launch,
                          const TensorRef& a, const TensorRef& b, const TensorRef& out) {
  GroupedGemmKernel t = planned(std::move(kernel), product, launch.call());
  const bool on_cores = t.compute != f32 || t.precision != Precision::ieee;
  if (on_cores) t.padding = padding_of(launch, t.type, a, b, out);
  return t;
}

Kernel grouped_weights_program(const GroupedWeightsKernel& t) {
  return kernel(instance_name("grouped_gemm_weights", t), [&] {
    Dim m("m"), n("n"), k("k"), groups("groups");
    Tensor a = input("a", {m, k}, t.type), dout = input("dout", {m, n}, t.type);
    Tensor offsets = input("offsets", {groups + 1}, i32),
           out = t.accumulates ? inout("out", {groups, k, n}, t.out) : output("out", {groups, k, n}, t.out);
    std::optional<Tensor> c;
    if (t.c) c.emplace(input("c", {groups, k, n}, *t.c));
    Expr most = scalar("max_rows", i32);
    const Tensor read_a = t.padding.a ? padded("padded_a", a) : a,
                 read_dout = t.padding.b ? padded("padded_dout", dout) : dout,
                 stored = stored_rows(out, t.padding.out);
    grid(ceildiv(n, t.n), ceildiv(k, t.m), groups, {.order = Order::grouped(8)},
         [&](Index x, Index y, Index group) {
           const Range rows = range(offsets(group), offsets(group + 1));
           assert_that(rows.begin >= 0 && rows.begin <= rows.end && rows.end <= m &&
                           (most == 0 || rows.end - rows.begin <= most),
                       "offsets do not fall, end with the number of rows, and keep max_rows");
           Tensor own_a = read_a.slice(rows), own_dout = read_dout.slice(rows);
           Fragment sum({t.m, t.n}, f32, 0);
           if (c || t.accumulates) copy((c ? *c : out).slice(group).at(y * t.m, x * t.n), sum);
           pipelined(ceildiv(rows.end - rows.begin, t.k), {.stages = 4}, [&](Index step) {
             Shared a_tile({t.k, t.m}, t.compute), d_tile({t.k, t.n}, t.compute);
             copy(own_a.at(step * t.k, y * t.m), a_tile);
             copy(own_dout.at(step * t.k, x * t.n), d_tile);
             gemm(a_tile.T(), d_tile, sum, {.precision = static_cast<lang::Precision>(t.precision)});
           });
           copy(sum, stored.slice(group).at(y * t.m, x * t.n));
         });
    if (t.padding.out) write_matrices(stored, out);
  });
}

GroupedWeightsKernel planned_weights(GroupedWeightsKernel t, const GroupedProduct& product,
                                     const BoundCall& call) {
  t.compute = multiplied_type(t.type, call.on_gpu());
  if (t.type != f32) t.precision = Precision::ieee;
  if (!call.on_gpu()) return t;
  const bool is_16_bits = t.compute.bits() == 16;
  if (!is_16_bits) t.k = 32;
  if (is_16_bits && product.k > 64 && product.n > 64) t.m = 128, t.n = product.n > 128 ? 256 : 128;
  return t;
}

GroupedWeightsKernel planned_weights(GroupedWeightsKernel kernel, const GroupedProduct& product,
                                     Launch& launch, const TensorRef& a, const TensorRef& dout,
                                     const TensorRef& out) {
  GroupedWeightsKernel t = planned_weights(std::move(kernel), product, launch.call());
  if (t.compute != f32 || t.precision != Precision::ieee)
    t.padding = padding_of_matrices(launch, t.type, a, dout, out);
  return t;
}

}  // namespace tegula::ops

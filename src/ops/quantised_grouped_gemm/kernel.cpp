#include "ops/quantised_grouped_gemm/kernel.hpp"

#include "ops/pieces/padding.hpp"
#include "ops/products/epilogue.hpp"
#include "ops/products/product_tiles.hpp"
#include "ops/products/scaled_products.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

struct Program {
  const QuantisedGroupedGemmKernel& c;
  const QuantisedTile& t = c.tile;
  Dim m{"m"}, n{"n"}, k{"k"}, groups{"groups"}, blocks{"blocks"};
  GroupedWalk walk{c.form, m, groups};
  Tensor a = input("a", walk.extents({m, k}), c.type);
  QuantisedInputs matrices{c.weights, {groups}, n, k, blocks};
  Tensor row_scale = c.row_scale ? input("row_scale", walk.extents({m}), f32) : a;
  Tensor bias = c.bias ? input("bias", {groups, n}, *c.bias) : a;
  Tensor row_weights = c.row_weights ? input("row_weights", walk.extents({m}), f32) : a;
  Tensor out = output("out", walk.extents({m, n}), c.out);
  QuantisedProduct product{c.weights, c.tile, c.compute};

  void run() {
    const Tensor read = c.padding.a ? padded("padded_a", a) : a, stored = stored_rows(out, c.padding.out);
    matrices.all = with_whole_pieces(c.weights, matrices.all);
    const auto body = [&](const Expr& x, const GroupedTile& tile) {
      const QuantisedMatrix matrix = matrices.slice(tile.group);
      Expr column = x * t.n;
      Fragment sum({t.n, t.m}, f32, 0);
      product.multiply(sum, tile.of(read), matrix, tile.row, column, range(0, ceildiv(k, t.k)));
      product.finish(sum, matrix, column);
      if (c.row_scale) multiply_along(sum, 1, load(tile.of(row_scale).at(tile.row), {t.m}, f32));
      if (c.bias) add_along(sum, 0, load(bias.slice(tile.group).at(column), {t.n}, f32));
      if (c.row_weights) multiply_along(sum, 1, load(tile.of(row_weights).at(tile.row), {t.m}, f32));
      copy(sum.T(), tile.of(stored).at(tile.row, column));
    };
    walk.divide(t.m);
    walk.each(ceildiv(n, t.n), body, t.blocks());
    if (c.padding.out) write_rows(walk, t.m, stored, out);
  }
};

}  // namespace

Kernel quantised_grouped_gemm_program(const QuantisedGroupedGemmKernel& c) {
  return kernel(instance_name("quantised_grouped_gemm", c), [&] { Program{c}.run(); });
}

QuantisedGroupedGemmKernel planned(QuantisedGroupedGemmKernel t, const GroupedProduct& product,
                                   const BoundCall& call) {
  t.compute = multiplied_type(rounded_weights(t.type), call.on_gpu());
  t.tile.m = product.rows <= 16 ? 16 : 64;
  if (call.on_gpu()) {
    const ProductTile tile =
        best_tile(gpu_table.quantised, {product.groups, product.rows, product.n, product.k}, 1,
                  planned_gpu_processors(call));
    t.tile = quantised_tile(tile.m, tile.n);
  }
  fit_step(t.tile, t.weights);
  return t;
}

GivenWeights::GivenWeights(WeightFormat format, bool packed, int block, const TensorRef& stored,
                           const TensorRef& factors, const std::optional<TensorRef>& zero_points) {
  weights.format = format, weights.packed = packed, weights.scale = factors.dtype;
  b = stored_elements(stored, weights);
  weights.group = factors.size(-2) == 1 ? 0 : block;
  weights.by_group = !lies_along_rows(factors);
  scales = turned(factors, !weights.by_group);
  if (!zero_points) return;
  weights.zeros = zero_points->dtype;
  weights.zeros_by_group = !lies_along_rows(*zero_points);
  zeros = turned(*zero_points, !weights.zeros_by_group);
}

}  // namespace tegula::ops

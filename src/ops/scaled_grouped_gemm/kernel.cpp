#include "ops/scaled_grouped_gemm/kernel.hpp"

#include "ops/products/scaled_products.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// `own` of every group, in the order in which rows and blocks are.
Extents scales_of_groups(const Expr& rows, const Expr& blocks, bool by_block) {
  return by_block ? Extents{blocks, rows} : Extents{rows, blocks};
}

struct Program {
  const ScaledGroupedGemmKernel& c;
  Dim m{"m"}, n{"n"}, k{"k"}, groups{"groups"};
  GroupedWalk walk{c.form, m, groups};
  Expr blocks = ceildiv(k, scaled_block), scale_rows = c.rows_b == 1 ? Expr(n) : ceildiv(n, c.rows_b);
  Tensor a = input("a", walk.extents({m, k}), c.type);
  Tensor b = input("b", {groups, n, k}, c.type);
  Tensor scale_a = input("scale_a", walk.extents(scales_of_groups(m, blocks, c.by_block_a)), c.scale);
  Tensor scale_b = c.by_block_b ? input("scale_b", {groups, blocks, scale_rows}, c.scale)
                                : input("scale_b", {groups, scale_rows, blocks}, c.scale);
  Tensor bias = c.bias ? input("bias", {groups, n}, *c.bias) : a;
  Tensor out = output("out", walk.extents({m, n}), c.out);

  void run() const {
    walk.each(ceildiv(n, c.n), c.m, [&](const Expr& x, const GroupedTile& tile) {
      ScaledSums sums = scaled_sums(c.m, c.n);
      const ScaledOperand left{tile.of(a), tile.of(scale_a, c.by_block_a ? 1 : 0), Along::k,
                               c.by_block_a ? Along::rows : Along::k, 1};
      const ScaledOperand right{b.slice(tile.group), scale_b.slice(tile.group), Along::k,
                                c.by_block_b ? Along::rows : Along::k, c.rows_b};
      multiply_scaled(sums, left, right, tile.row, x * c.n, k, c.compute);
      for (ScaledRows& own : sums) {
        Fragment& sum = own.values;
        if (c.bias) {
          Fragment added = load(bias.slice(tile.group).at(x * c.n), {c.n}, f32);
          parallel(sum, [&](Index i, Index j) { sum(i, j) += added(j); });
        }
        copy(sum, tile.of(out).at(tile.row + own.first, x * c.n));
      }
    });
  }
};

}  // namespace

Kernel scaled_grouped_gemm_program(const ScaledGroupedGemmKernel& c) {
  return kernel(instance_name("scaled_grouped_gemm", c), [&] { Program{c}.run(); });
}

ScaledGroupedGemmKernel planned(ScaledGroupedGemmKernel t, const GroupedProduct& product,
                                const BoundCall& call) {
  t.compute = product_tile_type(call, t.type, true);
  if (call.on_gpu()) {
    const ProductTile tile =
        best_tile(scaled_tiles(false), {product.groups, product.rows, product.n, product.k}, 1,
                  planned_gpu_processors(call));
    t.m = tile.m, t.n = tile.n;
  } else {
    t.m = product.rows <= 16 ? 16 : 64;
  }
  return t;
}

}  // namespace tegula::ops

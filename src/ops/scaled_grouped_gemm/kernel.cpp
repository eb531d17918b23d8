#include "ops/scaled_grouped_gemm/kernel.hpp"

#include "ops/pieces/padding.hpp"
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

  Tensor read_a = c.padding.a ? padded("padded_a", a) : a, read_b = c.padding.b ? padded("padded_b", b) : b,
         stored = stored_rows(out, c.padding.out);

  // The scales of the rows of every tile, those of a block side by side, as boxes of the copy engine are.
  Tensor scales_of_tiles() const {
    constexpr int blocks_of_part = 32;
    Tensor result = workspace("scales_of_tiles", {walk.tiles(), blocks, c.m}, c.scale);
    walk.each(ceildiv(blocks, blocks_of_part), [&](const Expr& x, const GroupedTile& tile) {
      const Tensor own = tile.of(scale_a, c.by_block_a ? 1 : 0), to = result.slice(tile.number);
      Expr block = x * blocks_of_part;
      if (c.by_block_a)
        copy(load(own.at(block, tile.row), {blocks_of_part, c.m}), to.at(block, 0));
      else
        copy(load(own.at(tile.row, block), {c.m, blocks_of_part}).T(), to.at(block, 0));
    });
    return result;
  }
  ScaledOperand rows_of(const GroupedTile& tile, const std::optional<Tensor>& scales) const {
    if (scales)
      return {tile.read_of(read_a), scales->slice(tile.number), Along::k, Along::rows, 1, Operand(0)};
    return {tile.of(read_a), tile.of(scale_a, c.by_block_a ? 1 : 0), Along::k,
            c.by_block_a ? Along::rows : Along::k, 1};
  }

  void run() {
    walk.divide(c.m);
    std::optional<Tensor> scales;
    if (c.m > most_rows_of_sums) scales.emplace(scales_of_tiles());
    walk.each(ceildiv(n, c.n), [&](const Expr& x, const GroupedTile& tile) {
      ScaledSums sums = scaled_sums(c.m, c.n, true);
      const ScaledOperand right{read_b.slice(tile.group), scale_b.slice(tile.group), Along::k,
                                c.by_block_b ? Along::rows : Along::k, c.rows_b};
      multiply_scaled(sums, rows_of(tile, scales), right, scales ? tile.first_read() : tile.row, x * c.n, k,
                      c.compute);
      for (ScaledRows& own : sums) {
        Fragment& sum = own.values;
        if (c.bias) {
          Fragment added = load(bias.slice(tile.group).at(x * c.n), {c.n}, f32);
          parallel(sum, [&](Index i, Index j) { sum(i, j) += added(j); });
        }
        sums.store(own, tile.of(stored).at(tile.row + own.first, x * c.n));
      }
    });
    if (c.padding.out) write_rows(walk, c.m, stored, out);
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
        best_tile(scaled_tiles(t.compute.bits() == 8 && t.rows_b == scaled_block),
                  {product.groups, product.rows, product.n, product.k}, 1, planned_gpu_processors(call));
    t.m = tile.m, t.n = tile.n;
  } else {
    t.m = product.rows <= 16 ? 16 : 64;
  }
  return t;
}

}  // namespace tegula::ops

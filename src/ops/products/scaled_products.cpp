#include "ops/products/scaled_products.hpp"

#include "ops/products/low_bits.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

Shared load_tile(const ScaledOperand& of, const Expr& row, const Expr& inner, int rows, DType compute) {
  const bool along_k = of.values_along == Along::k;
  Shared tile({along_k ? rows : scaled_block, along_k ? scaled_block : rows}, compute);
  copy(along_k ? of.values.at(row, inner) : of.values.at(inner, row), tile);
  return tile;
}

Tensor scales_of_block(const ScaledOperand& of, const Expr& block) {
  return of.scales_along == Along::rows ? of.scales.slice(block) : of.scales.slice(all, block);
}

// Those of the rows of a tile.
Shared load_scales(const ScaledOperand& of, const Expr& row, const Expr& block, int rows) {
  Shared scales({rows}, of.scales.type());
  copy(scales_of_block(of, block).at(of.scale_row ? Expr(*of.scale_row) : row), scales);
  return scales;
}

Expr scale_at(const ScaledOperand& of, const Expr& row, const Expr& block) {
  Expr at = row / of.rows_of_scale;
  return scale_of(of.scales_along == Along::rows ? of.scales(block, at) : of.scales(at, block),
                  of.scales.type());
}

// Rows of a's tile from `first` on, as many as `partial` has.
void multiply(const Shared& a, Along a_along, int first, const Shared& b, Along b_along, Fragment& partial) {
  const Range rows = range(first, first + partial.extent(0));
  const lang::GemmOptions options{.accumulate = Accumulate::tensor_core};
  Shared own = a_along == Along::k ? a.slice(rows, all) : a.slice(all, rows);
  if (a_along == Along::k && b_along == Along::k)
    gemm(own, b.T(), partial, options);
  else if (a_along == Along::k)
    gemm(own, b, partial, options);
  else if (b_along == Along::k)
    gemm(own.T(), b.T(), partial, options);
  else
    gemm(own.T(), b, partial, options);
}

}  // namespace

ScaledSums scaled_sums(int m, int n, bool stored_from_product) {
  ScaledSums sums;
  for (int first = 0; first < m; first += most_rows_of_sums)
    sums.rows.push_back({first, Fragment({std::min(m, most_rows_of_sums), n}, f32, 0)});
  if (stored_from_product && m > most_rows_of_sums)
    sums.product.emplace(Fragment({most_rows_of_sums, n}, f32));
  return sums;
}

void ScaledSums::store(const ScaledRows& own, const lang::Target& to) {
  if (!product) return copy(own.values, to);
  copy(own.values, *product);
  copy(*product, to);
}

void multiply_scaled(ScaledSums& sums, const ScaledOperand& a, const ScaledOperand& b, const Expr& row,
                     const Expr& column, const Range& blocks, const Expr& begin, DType compute) {
  const Fragment& first_rows = sums.rows[0].values;
  const int rows = static_cast<int>(first_rows.extent(0)), n = static_cast<int>(first_rows.extent(1));
  const int m = rows * static_cast<int>(sums.rows.size());
  pipelined(blocks, {.stages = 4}, [&](Index block) {
    Expr inner = block * scaled_block - begin;
    Shared a_tile = load_tile(a, row, inner, m, compute), b_tile = load_tile(b, column, inner, n, compute);
    Shared of_a = load_scales(a, row, block, m);
    std::optional<Shared> of_b;
    std::optional<Expr> one_of_b;
    if (b.rows_of_scale == 1)
      of_b.emplace(load_scales(b, column, block, n));
    else if (b.rows_of_scale % n == 0)
      one_of_b.emplace(scale_at(b, column, block));
    const auto scale_b = [&](const Index& j) {
      if (of_b) return scale_of((*of_b)(j), of_b->type());
      return one_of_b ? *one_of_b : scale_at(b, column + j, block);
    };
    std::optional<Fragment> own;
    if (!sums.product) own.emplace(Fragment({rows, n}, f32));
    Fragment& partial = sums.product ? *sums.product : *own;
    for (auto& [first, sum] : sums) {
      fill(partial, 0);
      multiply(a_tile, a.values_along, first, b_tile, b.values_along, partial);
      parallel(sum, [&](Index i, Index j) {
        sum(i, j) += partial(i, j) * (scale_of(of_a(i + first), of_a.type()) * scale_b(j));
      });
    }
  });
}

void multiply_scaled(ScaledSums& sums, const ScaledOperand& a, const ScaledOperand& b, const Expr& row,
                     const Expr& column, const Expr& k, DType compute) {
  multiply_scaled(sums, a, b, row, column, range(0, ceildiv(k, scaled_block)), Expr(Operand(0)), compute);
}

std::span<const TileCost> scaled_tiles(bool large) {
  const std::span<const TileCost> all = gpu_table.scaled;
  return large ? all : all.subspan(1);
}

bool lies_along_rows(const TensorRef& matrix) {
  return matrix.stride(-1) != 1 && matrix.size(-1) > 1 && matrix.stride(-2) == 1;
}

TensorRef turned(const TensorRef& matrix, bool turn) { return turn ? matrix.transpose(-2, -1) : matrix; }

}  // namespace tegula::ops

#include "ops/products/scaled_products.hpp"

#include "ops/products/low_bits.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

Shared load_tile(const ScaledOperand& of, const Expr& row, const Expr& inner, int rows, DType compute) {
  const bool along_k = of.values_along == Along::k;
  Shared tile({along_k ? rows : scaled_block, along_k ? scaled_block : rows}, compute);
  copy(along_k ? of.values.at(row, inner) : of.values.at(inner, row), tile);
  return tile;
}

// Those of the rows of a tile.
Shared load_scales(const ScaledOperand& of, const Expr& row, const Expr& block, int rows) {
  Shared scales({rows}, of.scales.type());
  copy((of.scales_along == Along::rows ? of.scales.slice(block) : of.scales.slice(all, block)).at(row),
       scales);
  return scales;
}

Expr scale_at(const ScaledOperand& of, const Expr& row, const Expr& block) {
  Expr at = row / of.rows_of_scale;
  return scale_of(of.scales_along == Along::rows ? of.scales(block, at) : of.scales(at, block),
                  of.scales.type());
}

}  // namespace

void multiply_scaled(Fragment& sum, const ScaledOperand& a, const ScaledOperand& b, const Expr& row,
                     const Expr& column, const Range& blocks, const Expr& begin, DType compute) {
  const int m = static_cast<int>(sum.extent(0)), n = static_cast<int>(sum.extent(1));
  pipelined(blocks, {.stages = 4}, [&](Index block) {
    Expr inner = block * scaled_block - begin;
    Shared a_tile = load_tile(a, row, inner, m, compute), b_tile = load_tile(b, column, inner, n, compute);
    Shared of_a = load_scales(a, row, block, m);
    Fragment part({m, n}, f32, 0);
    const lang::GemmOptions options{.accumulate = Accumulate::tensor_core};
    if (a.values_along == Along::k && b.values_along == Along::k)
      gemm(a_tile, b_tile.T(), part, options);
    else if (a.values_along == Along::k)
      gemm(a_tile, b_tile, part, options);
    else if (b.values_along == Along::k)
      gemm(a_tile.T(), b_tile.T(), part, options);
    else
      gemm(a_tile.T(), b_tile, part, options);
    const auto scale_a = [&](const Index& i) { return scale_of(of_a(i), of_a.type()); };
    if (b.rows_of_scale == 1) {
      Shared of_b = load_scales(b, column, block, n);
      parallel(sum, [&](Index i, Index j) {
        sum(i, j) += part(i, j) * (scale_a(i) * scale_of(of_b(j), of_b.type()));
      });
    } else if (b.rows_of_scale % n == 0) {
      Expr of_b = scale_at(b, column, block);
      parallel(sum, [&](Index i, Index j) { sum(i, j) += part(i, j) * (scale_a(i) * of_b); });
    } else {
      parallel(sum, [&](Index i, Index j) {
        sum(i, j) += part(i, j) * (scale_a(i) * scale_at(b, column + j, block));
      });
    }
  });
}

void multiply_scaled(Fragment& sum, const ScaledOperand& a, const ScaledOperand& b, const Expr& row,
                     const Expr& column, const Expr& k, DType compute) {
  multiply_scaled(sum, a, b, row, column, range(0, ceildiv(k, scaled_block)), Expr(Operand(0)), compute);
}

DType scaled_tile_type(const BoundCall& call, DType type, bool along_k) {
  if (!call.on_gpu()) return f32;
  return along_k && call.target() != tegula::Target::cuda_sm80() ? type : f16;
}

bool lies_along_rows(const TensorRef& matrix) {
  return matrix.stride(-1) != 1 && matrix.size(-1) > 1 && matrix.stride(-2) == 1;
}

TensorRef turned(const TensorRef& matrix, bool turn) { return turn ? matrix.transpose(-2, -1) : matrix; }

}  // namespace tegula::ops

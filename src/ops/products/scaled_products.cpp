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
  copy(scales_of_block(of, block).at(row), scales);
  return scales;
}

// The scales of a's rows in a tile, in one vector, or in one for each part of the sums.
class RowScales {
 public:
  RowScales(const ScaledOperand& a, const Expr& row, const Expr& block, int rows, int parts) {
    const bool begins_anywhere = a.first_row && a.scales_along == Along::rows;
    if (!begins_anywhere) {
      loaded_.push_back(load_scales(a, row, block, rows * parts));
      return;
    }
    // Boxes of the copy engine begin at whole pieces, and have no more than 256 elements.
    const int piece = bytes_of_piece / a.scales.type().bytes();
    skipped_.emplace(row % piece);
    for (int part = 0; part < parts; ++part)
      loaded_.push_back(load_scales(a, row / piece * piece + part * rows, block, rows + piece));
  }
  // Of the row i of a part, which begins at the row `first`.
  Expr at(const Index& i, int first, std::size_t part) const {
    const DType type = loaded_[0].type();
    return scale_of(skipped_ ? loaded_[part](i + *skipped_) : loaded_[0](i + first), type);
  }

 private:
  std::vector<Shared> loaded_;
  std::optional<Operand> skipped_;
};

Expr scale_at(const ScaledOperand& of, const Expr& row, const Expr& block) {
  Expr at = row / of.rows_of_scale;
  return scale_of(of.scales_along == Along::rows ? of.scales(block, at) : of.scales(at, block),
                  of.scales.type());
}

// Rows of a's tile from `first` on, as many as `part` has.
void multiply(const Shared& a, Along a_along, int first, const Shared& b, Along b_along, Fragment& part) {
  const Range rows = range(first, first + part.extent(0));
  const lang::GemmOptions options{.accumulate = Accumulate::tensor_core};
  Shared own = a_along == Along::k ? a.slice(rows, all) : a.slice(all, rows);
  if (a_along == Along::k && b_along == Along::k)
    gemm(own, b.T(), part, options);
  else if (a_along == Along::k)
    gemm(own, b, part, options);
  else if (b_along == Along::k)
    gemm(own.T(), b.T(), part, options);
  else
    gemm(own.T(), b, part, options);
}

}  // namespace

ScaledSums scaled_sums(int m, int n) {
  ScaledSums sums;
  for (int first = 0; first < m; first += most_rows_of_sums)
    sums.push_back({first, Fragment({std::min(m, most_rows_of_sums), n}, f32, 0)});
  return sums;
}

void multiply_scaled(ScaledSums& sums, const ScaledOperand& a, const ScaledOperand& b, const Expr& row,
                     const Expr& column, const Range& blocks, const Expr& begin, DType compute) {
  const int rows = static_cast<int>(sums[0].values.extent(0)), n = static_cast<int>(sums[0].values.extent(1));
  const int m = rows * static_cast<int>(sums.size());
  pipelined(blocks, {.stages = 4}, [&](Index block) {
    Expr inner = block * scaled_block - begin;
    Expr row_of_a = a.first_row ? *a.first_row + row : row;
    Shared a_tile = load_tile(a, row_of_a, inner, m, compute),
           b_tile = load_tile(b, column, inner, n, compute);
    const RowScales of_a(a, row_of_a, block, rows, static_cast<int>(sums.size()));
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
    Fragment part({rows, n}, f32);
    for (std::size_t number = 0; number < sums.size(); ++number) {
      auto& [first, sum] = sums[number];
      fill(part, 0);
      multiply(a_tile, a.values_along, first, b_tile, b.values_along, part);
      parallel(sum,
               [&](Index i, Index j) { sum(i, j) += part(i, j) * (of_a.at(i, first, number) * scale_b(j)); });
    }
  });
}

void multiply_scaled(ScaledSums& sums, const ScaledOperand& a, const ScaledOperand& b, const Expr& row,
                     const Expr& column, const Expr& k, DType compute) {
  multiply_scaled(sums, a, b, row, column, range(0, ceildiv(k, scaled_block)), Expr(Operand(0)), compute);
}

Tensor turned_scales(const Tensor& scales) {
  constexpr int side = 32;
  const bool has_groups = scales.rank() == 3;
  const int piece = bytes_of_piece / scales.type().bytes();
  Expr groups = has_groups ? scales.extent(0) : Expr(1), rows = scales.extent(has_groups ? 1 : 0),
       blocks = scales.extent(has_groups ? 2 : 1), width = ceildiv(rows, piece) * piece;
  Tensor result =
      workspace("scales_of_blocks", has_groups ? Extents{groups, blocks, width} : Extents{blocks, width},
                scales.type());
  const auto turn = [&](const Tensor& from, const Tensor& to, const Index& x, const Index& y) {
    Fragment tile = load(from.at(x * side, y * side), {side, side});
    copy(tile.T(), to.at(y * side, x * side));
  };
  if (has_groups)
    grid(ceildiv(rows, side), ceildiv(blocks, side), groups,
         [&](Index x, Index y, Index group) { turn(scales.slice(group), result.slice(group), x, y); });
  else
    grid(ceildiv(rows, side), ceildiv(blocks, side), [&](Index x, Index y) { turn(scales, result, x, y); });
  return result;
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

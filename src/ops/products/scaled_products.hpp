// Products of 8-bit floats with a scale per 128 along the inner dimension: the loop and its operands.
#pragma once
#include "ops/products/product_tiles.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/schema/bound.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// Elements of the inner dimension that share a scale.
inline constexpr int scaled_block = 128;

// How an operand is laid out: rows of k side by side, or columns.
enum class Along { k, rows };

// One matrix [rows, k], or [k, rows] where its columns are contiguous, and its scales [rows, blocks], or
// [blocks, rows] where those of a block do. `rows_of_scale` rows share one.
struct ScaledOperand {
  lang::Tensor values, scales;
  Along values_along = Along::k, scales_along = Along::k;
  int rows_of_scale = 1;
  std::optional<lang::Operand> scale_row = {};  // where the scales of a tile begin, if not at the tile's row
};

// Rows of a tile whose sums are formed together: those of two warp groups.
inline constexpr int most_rows_of_sums = 128;
// Sums of so many rows of a tile at most, from `first` on.
struct ScaledRows {
  int first;
  lang::Fragment values;
};
// Those of more rows are formed one after the other, with one set of registers for what tensor cores add.
struct ScaledSums {
  std::vector<ScaledRows> rows;
  // Those registers, where results leave from them: the copy engine stores what products leave.
  std::optional<lang::Fragment> product = {};

  auto begin() { return rows.begin(); }
  auto end() { return rows.end(); }
  void store(const ScaledRows& own, const lang::Target& to);
};
ScaledSums scaled_sums(int m, int n, bool stored_from_product);  // zeros

// sums += the scaled product of tiles from the rows `row` of a and `column` of b on, over all blocks of k.
// Tiles have the type `compute`.
void multiply_scaled(ScaledSums& sums, const ScaledOperand& a, const ScaledOperand& b, const lang::Expr& row,
                     const lang::Expr& column, const lang::Expr& k, DType compute);
// The same over some blocks. Operands have what is from `begin` of the inner dimension on, scales all
// blocks.
void multiply_scaled(ScaledSums& sums, const ScaledOperand& a, const ScaledOperand& b, const lang::Expr& row,
                     const lang::Expr& column, const lang::Range& blocks, const lang::Expr& begin,
                     DType compute);

// Tiles to choose among. Large ones were measured where tensor cores take 8 bits and blocks of b have one
// scale.
std::span<const TileCost> scaled_tiles(bool large);
// Whether elements of a column are contiguous, and those of a row are not.
bool lies_along_rows(const TensorRef& matrix);
// Its last two dims exchanged, if they are to be.
TensorRef turned(const TensorRef& matrix, bool turn);

}  // namespace tegula::ops

#include "ops/pieces/tf32_operands.hpp"

#include "ir/tf32.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

// The nearest number of tf32, as ir::rounded_to_tf32 has it.
Expr nearest(const Expr& x) {
  const Expr bits = bitcast(x, u32);
  return select(isnan(x), x, bitcast((bits + ir::half_of_tf32) & ir::mask_of_tf32, f32));
}

// Writes the terms of a tile, which belong at this place of each.
void divide(const Fragment& tile, const Tensor& copied, const Expr& matrix, const Expr& row,
            const Expr& column, int terms) {
  Fragment near("near", {tile.extent(0), tile.extent(1)}, f32);
  parallel(near, [&](Index i, Index j) { near(i, j) = nearest(tile(i, j)); });
  copy(near, copied.slice(0, matrix).at(row, column));
  if (terms == 1) return;
  Fragment remainder("rest", {tile.extent(0), tile.extent(1)}, f32);
  parallel(remainder, [&](Index i, Index j) {
    remainder(i, j) = select(abs(near(i, j)) == inf, 0.f, nearest(tile(i, j) - near(i, j)));
  });
  copy(remainder, copied.slice(1, matrix).at(row, column));
}

}  // namespace

Tensor as_tf32(const std::string& name, const Tensor& matrix, bool transposed, int terms) {
  constexpr int rows_of_block = 8, columns_of_block = 512, side = 64;
  const int piece = bytes_of_piece / f32.bytes();
  Expr batch = matrix.extent(0), rows = matrix.extent(transposed ? 2 : 1);
  Expr columns = ceildiv(matrix.extent(transposed ? 1 : 2), piece) * piece;
  Tensor copied = workspace(name, {terms, batch, rows, columns}, f32);
  if (!transposed) {
    grid(ceildiv(columns, columns_of_block), ceildiv(rows, rows_of_block), batch,
         [&](Index x, Index y, Index z) {
           Expr row = y * rows_of_block, column = x * columns_of_block;
           Fragment tile = load(matrix.slice(z).at(row, column), {rows_of_block, columns_of_block});
           divide(tile, copied, z, row, column, terms);
         });
    return copied;
  }
  grid(ceildiv(columns, side), ceildiv(rows, side), batch, [&](Index x, Index y, Index z) {
    Expr row = y * side, column = x * side;
    Fragment lying = load(matrix.slice(z).at(column, row), {side, side});
    // Rows of an odd number of words: columns of the tile are in different banks.
    Shared turning("turning", {side, side + 1}, f32);
    parallel(lying, [&](Index i, Index j) { turning(i, j) = lying(i, j); });
    Fragment tile("tile", {side, side}, f32);
    parallel(tile, [&](Index i, Index j) { tile(i, j) = turning(j, i); });
    divide(tile, copied, z, row, column, terms);
  });
  return copied;
}

}  // namespace tegula::ops

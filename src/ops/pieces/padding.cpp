#include "ops/pieces/padding.hpp"

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

Tensor padded(const std::string& name, const Tensor& matrix) {
  constexpr int rows_of_block = 8, columns_of_block = 512;
  const int piece = bytes_of_piece * 8 / matrix.type().bits();
  const bool is_batch = matrix.rank() == 3;
  Expr batch = is_batch ? matrix.extent(0) : Expr(Operand(1)), rows = matrix.extent(matrix.rank() - 2);
  Expr columns = ceildiv(matrix.extent(matrix.rank() - 1), piece) * piece;
  // Of the matrix's rank: a reshaped tensor would have no boxes.
  Tensor copied =
      workspace(name, is_batch ? Extents{batch, rows, columns} : Extents{rows, columns}, matrix.type());
  const auto one = [&](const Tensor& of, const Expr& z) { return is_batch ? of.slice(z) : of; };
  grid(ceildiv(columns, columns_of_block), ceildiv(rows, rows_of_block), batch,
       [&](Index x, Index y, Index z) {
         Expr row = y * rows_of_block, column = x * columns_of_block;
         Fragment tile = load(one(matrix, z).at(row, column), {rows_of_block, columns_of_block});
         copy(tile, one(copied, z).at(row, column));
       });
  return copied;
}

}  // namespace tegula::ops

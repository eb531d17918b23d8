#include "ops/pieces/padding.hpp"

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

Tensor padded(const std::string& name, const Tensor& matrix) {
  constexpr int rows_of_block = 8, columns_of_block = 512;
  const int piece = bytes_of_piece * 8 / matrix.type().bits();
  Expr batch = matrix.extent(0), rows = matrix.extent(1);
  Expr columns = ceildiv(matrix.extent(2), piece) * piece;
  Tensor copied = workspace(name, {batch, rows, columns}, matrix.type());
  grid(ceildiv(columns, columns_of_block), ceildiv(rows, rows_of_block), batch,
       [&](Index x, Index y, Index z) {
         Expr row = y * rows_of_block, column = x * columns_of_block;
         Fragment tile = load(matrix.slice(z).at(row, column), {rows_of_block, columns_of_block});
         copy(tile, copied.slice(z).at(row, column));
       });
  return copied;
}

}  // namespace tegula::ops

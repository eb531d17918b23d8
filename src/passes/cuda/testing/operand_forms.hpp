// For tests: the forms in which a program can give an operand of a product.
#pragma once
#include <vector>

#include "tegula/lang.hpp"

namespace tegula::passes::testing {

enum class Operand {
  shared,
  transposed,
  fragment,
  columns,        // of a tile that is twice as wide
  last_columns,   // from the eighth on
  rows,           // of a tile that is twice as high
  last_rows,      // from the fourth on
  chosen,         // one of two matrices of a tile, the program says which when it runs
  reshaped,       // of a tile of rank 3 with as many columns
  halved,         // of a tile with rows twice as long
  fragment_part,  // columns of a fragment
};

// The shape of the tile that contains the operand.
inline std::vector<int> tile_shape(Operand form, int rows, int columns) {
  switch (form) {
    case Operand::transposed:
      return {columns, rows};
    case Operand::columns:
    case Operand::fragment_part:
      return {rows, 2 * columns};
    case Operand::last_columns:
      return {rows, 2 * columns + 16};
    case Operand::rows:
    case Operand::last_rows:
      return {2 * rows, columns};
    case Operand::chosen:
      return {2, rows, columns};
    case Operand::reshaped:
      return {rows / 2, 2, columns};
    case Operand::halved:
      return {rows / 2, 2 * columns};
    default:
      return {rows, columns};
  }
}

inline lang::Shared shared_tile(const std::vector<int>& shape, DType type) {
  if (shape.size() == 2) return lang::Shared({shape[0], shape[1]}, type);
  return lang::Shared({shape[0], shape[1], shape[2]}, type);
}

// Uses the operand [rows, columns]. `shared` and `fragment` make tiles of a shape; `which` is 0 or 1.
template <class MakeShared, class MakeFragment, class Use>
void with_operand(Operand form, int rows, int columns, const lang::Expr& which, const MakeShared& shared,
                  const MakeFragment& fragment, const Use& use) {
  using lang::all, lang::range;
  const std::vector<int> shape = tile_shape(form, rows, columns);
  if (form == Operand::fragment) return use(fragment(shape));
  if (form == Operand::fragment_part) return use(fragment(shape).slice(all, range(columns, 2 * columns)));
  const lang::Shared tile = shared(shape);
  switch (form) {
    case Operand::transposed:
      return use(tile.T());
    case Operand::columns:
      return use(tile.slice(all, range(columns, 2 * columns)));
    case Operand::last_columns:
      return use(tile.slice(all, range(8, columns + 8)));
    case Operand::rows:
      return use(tile.slice(range(rows, 2 * rows), all));
    case Operand::last_rows:
      return use(tile.slice(range(4, rows + 4), all));
    case Operand::chosen:
      return use(tile.slice(which));
    case Operand::reshaped:
    case Operand::halved:
      return use(tile.reshape({rows, columns}));
    default:
      return use(tile);
  }
}

}  // namespace tegula::passes::testing

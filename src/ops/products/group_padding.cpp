#include "ops/products/group_padding.hpp"

#include "ops/pieces/matrices.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/products/tile_types.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

Expr whole_pieces(const Tensor& rows) {
  const int piece = bytes_of_piece * 8 / rows.type().bits();
  return ceildiv(rows.extent(rows.rank() - 1), piece) * piece;
}

bool is_long(const TensorRef& rows) {
  constexpr std::int64_t short_row = 768;  // bytes
  return rows.size(-1) * rows.dtype.bits() / 8 >= short_row;
}

// Short rows of operands are multiplied faster than results are written twice.
bool is_stored_apart(const TensorRef& a, const TensorRef& out) {
  return is_long(a) && starts_off_pieces(out);
}

GroupPadding noted(Launch& launch, const GroupPadding& padding) {
  if (padding.a || padding.b || padding.out) note_padding(launch);
  return padding;
}

}  // namespace

GroupPadding padding_of_matrices(Launch& launch, DType type, const TensorRef& a, const TensorRef& b,
                                 const TensorRef& out) {
  if (!has_copy_engine(launch.call()) || type == f32) return {};
  return noted(launch, {starts_off_pieces(a), starts_off_pieces(b), is_stored_apart(out, out)});
}

GroupPadding padding_of(Launch& launch, DType type, const TensorRef& a, const TensorRef& b,
                        const TensorRef& out) {
  if (!has_copy_engine(launch.call()) || type == f32) return {};
  return noted(launch, {starts_off_pieces(a), starts_off_pieces(b), is_stored_apart(a, out)});
}

GroupPadding padding_of_rows(Launch& launch, const TensorRef& a, const TensorRef& out) {
  if (!has_copy_engine(launch.call())) return {};
  return noted(launch, {starts_off_pieces(a), false, is_stored_apart(a, out)});
}

Tensor stored_rows(const Tensor& out, bool apart) {
  if (!apart) return out;
  Extents extents;
  for (int dim = 0; dim + 1 < out.rank(); ++dim) extents.push_back(out.extent(dim));
  extents.push_back(whole_pieces(out));
  return workspace("stored", extents, out.type());
}

void write_matrices(const Tensor& stored, const Tensor& out) {
  constexpr int rows_of_block = 8, columns_of_block = 512;
  const bool is_batch = out.rank() == 3;
  const auto one = [&](const Tensor& of, const Expr& z) { return is_batch ? of.slice(z) : of; };
  grid(ceildiv(out.extent(out.rank() - 1), columns_of_block),
       ceildiv(out.extent(out.rank() - 2), rows_of_block), is_batch ? out.extent(0) : Expr(Operand(1)),
       [&](Index x, Index y, Index z) {
         Expr row = y * rows_of_block, column = x * columns_of_block;
         Fragment own = load(one(stored, z).at(row, column), {rows_of_block, columns_of_block});
         copy(own, one(out, z).at(row, column));
       });
}

void write_rows(const GroupedWalk& walk, int tile_rows, const Tensor& stored, const Tensor& out) {
  constexpr int columns = 128;
  walk.each(ceildiv(out.extent(out.rank() - 1), columns), [&](const Expr& x, const GroupedTile& tile) {
    Fragment own = load(tile.of(stored).at(tile.row, x * columns), {tile_rows, columns});
    copy(own, tile.of(out).at(tile.row, x * columns));
  });
}

}  // namespace tegula::ops

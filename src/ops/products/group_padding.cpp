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

bool is_stored_apart(const TensorRef& a, const TensorRef& out) {
  // Rows of operands up to here are multiplied faster than results are written twice.
  constexpr std::int64_t short_row = 768;  // bytes
  return a.size(-1) * a.dtype.bits() / 8 >= short_row && starts_off_pieces(out);
}

GroupPadding noted(Launch& launch, const GroupPadding& padding) {
  if (padding.a || padding.b || padding.out) note_padding(launch);
  return padding;
}

}  // namespace

GroupPadding padding_of_operands(Launch& launch, DType type, const TensorRef& a, const TensorRef& b) {
  if (!has_copy_engine(launch.call()) || type == f32) return {};
  return noted(launch, {starts_off_pieces(a), starts_off_pieces(b), false});
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

void write_rows(const GroupedWalk& walk, int tile_rows, const Tensor& stored, const Tensor& out) {
  constexpr int columns = 128;
  walk.each(ceildiv(out.extent(out.rank() - 1), columns), [&](const Expr& x, const GroupedTile& tile) {
    Fragment own = load(tile.of(stored).at(tile.row, x * columns), {tile_rows, columns});
    copy(own, tile.of(out).at(tile.row, x * columns));
  });
}

}  // namespace tegula::ops

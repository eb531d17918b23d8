#include "ops/products/group_padding.hpp"

#include "ops/pieces/matrices.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/products/tile_types.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

bool needs_padding_of_rows(TensorRef rows) {
  if (rows.rank() == 2) {
    rows.shape.insert(rows.shape.begin(), 1);
    rows.strides.insert(rows.strides.begin(), 0);
  }
  return needs_padding(rows);
}

Expr whole_pieces(const Tensor& rows) {
  const int piece = bytes_of_piece * 8 / rows.type().bits();
  return ceildiv(rows.extent(rows.rank() - 1), piece) * piece;
}

}  // namespace

namespace {

GroupPadding noted(Launch& launch, const GroupPadding& padding) {
  if (padding.a || padding.b || padding.out)
    launch.note([] {
      return std::string(
          "plan: rows that do not begin at multiples of 16 bytes are copied first, or written last");
    });
  return padding;
}

}  // namespace

GroupPadding padding_of_operands(Launch& launch, DType type, const TensorRef& a, const TensorRef& b) {
  if (!has_copy_engine(launch.call()) || type == f32) return {};
  return noted(launch, {needs_padding_of_rows(a), needs_padding_of_rows(b), false});
}

GroupPadding padding_of(Launch& launch, DType type, const TensorRef& a, const TensorRef& b,
                        const TensorRef& out) {
  if (!has_copy_engine(launch.call()) || type == f32) return {};
  // Rows of operands up to here are multiplied faster than results are written twice.
  constexpr std::int64_t short_row = 768;  // bytes
  const bool is_long = a.size(-1) * a.dtype.bits() / 8 >= short_row;
  return noted(launch,
               {needs_padding_of_rows(a), needs_padding_of_rows(b), is_long && needs_padding_of_rows(out)});
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

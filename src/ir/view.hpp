// Buffers (tensors and tiles) and the views through which statements reach them.
#pragma once
#include "ir/expr.hpp"

namespace tegula::ir {

enum class Space : std::uint8_t { global, shared, fragment };
enum class Role : std::uint8_t { input, output, inout, workspace, tile };

// Identity is the address.
struct Buffer {
  std::string name;
  Space space;
  Role role;
  DType type;
  std::vector<Expr> shape;  // tiles: constants; tensors: known at the call
  bool zero = false;        // cleared by the runtime before the first grid
  Loc at;

  int rank() const { return static_cast<int>(shape.size()); }
  bool is_tile() const { return space != Space::global; }
  bool is_writable() const { return role != Role::input; }
  // Tiles only.
  std::int64_t extent(int dim) const { return constant_value(shape[static_cast<std::size_t>(dim)]); }
  std::int64_t elements() const;
};
using BufferPtr = std::shared_ptr<const Buffer>;

// How one dimension of the (reshaped) buffer is addressed: coordinate = offset + index along `axis`.
struct ViewDim {
  Expr offset;
  Expr low, high;  // coordinates allowed by slices, half open; null where only the buffer's own extent limits
  int axis = -1;   // of the view; -1: the coordinate is just the offset
};

// A buffer, or a window of one, seen with its own axes. The elements of the buffer in row-major order are
// first given `shape` (reshape), then sliced, shifted and transposed by `dims`.
struct View {
  BufferPtr buffer;
  std::vector<Expr> shape;
  std::vector<ViewDim> dims;  // one for each entry of `shape`
  std::vector<Expr>
      extents;  // of the axes; for a window (see Copy) those of the tile on the other side count

  int rank() const { return static_cast<int>(extents.size()); }
  bool is_tile() const { return buffer->is_tile(); }
  // Tiles only.
  std::int64_t extent(int axis) const { return constant_value(extents[static_cast<std::size_t>(axis)]); }
};

View whole(const BufferPtr& buffer);
// The whole buffer with its own shape and axes: nothing reshaped, sliced, shifted or transposed.
bool is_whole(const View& view);
// Whether the view shows the buffer's dimensions as they are, not reshaped.
bool is_own_shape(const View& view);

// One element: an index for each axis.
struct Access {
  View view;
  std::vector<Expr> index;
};

// The coordinates in the reshaped buffer: offset + index, one for each of view.dims.
std::vector<Expr> coordinates(const Access& access);
// Whether both are the same element of one buffer, as far as their expressions say.
bool same_place(const Access& a, const Access& b);

}  // namespace tegula::ir

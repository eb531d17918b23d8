#include "ir/view.hpp"

#include <algorithm>

namespace tegula::ir {
namespace {

Expr widened(const Expr& e, DType type) { return e->held() == type ? e : make(Op::cast, type, {e}, e->at); }

Expr sum(const Expr& offset, const Expr& index) {
  if (is_constant(offset, 0)) return index;
  if (is_constant(index, 0)) return offset;
  const DType type = offset->held() == i64 || index->held() == i64 ? i64 : i32;
  return make(Op::add, type, {widened(offset, type), widened(index, type)}, index->at);
}

}  // namespace

std::int64_t Buffer::elements() const {
  internal_assert(is_tile(), "only the number of elements of a tile is known");
  std::int64_t product = 1;
  for (int dim = 0; dim < rank(); ++dim) {
    internal_assert(!__builtin_mul_overflow(product, extent(dim), &product), "a tile is too large");
  }
  return product;
}

View whole(const BufferPtr& buffer) {
  internal_assert(buffer != nullptr, "a view shows no buffer");
  View view{buffer, buffer->shape, {}, buffer->shape};
  for (int axis = 0; axis < buffer->rank(); ++axis) {
    view.dims.push_back({int32(0, buffer->at), nullptr, nullptr, axis});
  }
  return view;
}

bool is_whole(const View& view) {
  const std::size_t rank = view.buffer->shape.size();
  if (view.shape.size() != rank || view.dims.size() != rank || view.extents.size() != rank) return false;
  for (std::size_t i = 0; i < rank; ++i) {
    const ViewDim& dim = view.dims[i];
    if (dim.axis != static_cast<int>(i) || dim.low != nullptr || dim.high != nullptr) return false;
    if (!is_constant(dim.offset, 0)) return false;
    if (!equal(view.shape[i], view.buffer->shape[i])) return false;
    if (!equal(view.extents[i], view.buffer->shape[i])) return false;
  }
  return true;
}

bool is_own_shape(const View& view) { return equal(view.shape, view.buffer->shape); }

std::vector<Expr> coordinates(const Access& access) {
  std::vector<Expr> result;
  for (const ViewDim& dim : access.view.dims) {
    if (dim.axis < 0) {
      result.push_back(dim.offset);
    } else {
      result.push_back(sum(dim.offset, access.index.at(static_cast<std::size_t>(dim.axis))));
    }
  }
  return result;
}

bool same_place(const Access& a, const Access& b) {
  return a.view.buffer == b.view.buffer && equal(a.view.shape, b.view.shape) &&
         equal(coordinates(a), coordinates(b));
}

}  // namespace tegula::ir

#include "fuzz/views.hpp"

#include <algorithm>

namespace tegula::fuzz {
namespace {

using namespace ir;

// In the wider one of the types.
Expr arithmetic(Op op, const Expr& a, const Expr& b) {
  const DType type = a->held() == i64 || b->held() == i64 ? i64 : i32;
  const auto widened = [&](const Expr& e) { return e->held() == type ? e : make(Op::cast, type, {e}); };
  return make(op, type, {widened(a), widened(b)});
}

Expr tightest(Op op, const Expr& limit, const Expr& other) {
  return limit == nullptr ? other : arithmetic(op, limit, other);
}

ViewDim& dim_of(View& view, int axis) {
  return *std::find_if(view.dims.begin(), view.dims.end(), [&](const ViewDim& d) { return d.axis == axis; });
}

}  // namespace

Expr plus(const Expr& a, const Expr& b) {
  if (is_constant(a, 0)) return b;
  if (is_constant(b, 0)) return a;
  if (is_constant(a) && is_constant(b)) return int32(constant_value(a) + constant_value(b));
  return arithmetic(Op::add, a, b);
}

void slice_range(View& view, int axis, const Expr& begin, const Expr& end) {
  ViewDim& dim = dim_of(view, axis);
  dim.low = tightest(Op::max, dim.low, plus(dim.offset, begin));
  dim.high = tightest(Op::min, dim.high, plus(dim.offset, end));
  dim.offset = plus(dim.offset, begin);
  const bool known = is_constant(begin) && is_constant(end);
  view.extents[static_cast<std::size_t>(axis)] =
      known ? int32(constant_value(end) - constant_value(begin)) : arithmetic(Op::sub, end, begin);
}

void fix(View& view, int axis, const Expr& index) {
  ViewDim& dim = dim_of(view, axis);
  dim.offset = plus(dim.offset, index);
  dim.axis = -1;
  for (ViewDim& other : view.dims) {
    if (other.axis > axis) --other.axis;
  }
  view.extents.erase(view.extents.begin() + axis);
}

void shift(View& view, int axis, const Expr& offset) {
  ViewDim& dim = dim_of(view, axis);
  dim.offset = plus(dim.offset, offset);
}

void swap_axes(View& view, int a, int b) {
  ViewDim &first = dim_of(view, a), &second = dim_of(view, b);
  std::swap(first.axis, second.axis);
  std::swap(view.extents[static_cast<std::size_t>(a)], view.extents[static_cast<std::size_t>(b)]);
}

View reshaped(const BufferPtr& buffer, const std::vector<Expr>& shape) {
  View view{buffer, shape, {}, shape};
  for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis)
    view.dims.push_back({int32(0), nullptr, nullptr, axis});
  return view;
}

}  // namespace tegula::fuzz

// Short ways to write IR by hand, for tests.
#pragma once
#include "ir/ir.hpp"

namespace tegula::ir::testing {

inline VariablePtr named(const char* name, VariableKind kind = VariableKind::index, DType type = i32,
                         const Loc& at = Loc::current()) {
  return std::make_shared<const Variable>(Variable{name, type, kind, at});
}

inline Expr binary(Op op, const Expr& a, const Expr& b) {
  const bool to_truth = op >= Op::eq && op <= Op::logical_or;
  return make(op, to_truth ? boolean : a->held(), {a, b}, a->at);
}
inline Expr operator+(const Expr& a, const Expr& b) { return binary(Op::add, a, b); }
inline Expr operator-(const Expr& a, const Expr& b) { return binary(Op::sub, a, b); }
inline Expr operator*(const Expr& a, const Expr& b) { return binary(Op::mul, a, b); }
inline Expr operator/(const Expr& a, const Expr& b) { return binary(Op::div, a, b); }
inline Expr operator%(const Expr& a, const Expr& b) { return binary(Op::mod, a, b); }
inline Expr operator+(const Expr& a, int b) { return a + constant(a->held(), b); }
inline Expr operator-(const Expr& a, int b) { return a - constant(a->held(), b); }
inline Expr operator*(const Expr& a, int b) { return a * constant(a->held(), b); }
inline Expr operator/(const Expr& a, int b) { return a / constant(a->held(), b); }
inline Expr operator%(const Expr& a, int b) { return a % constant(a->held(), b); }
inline Expr lt(const Expr& a, const Expr& b) { return binary(Op::lt, a, b); }
inline Expr le(const Expr& a, const Expr& b) { return binary(Op::le, a, b); }
inline Expr ge(const Expr& a, const Expr& b) { return binary(Op::ge, a, b); }
inline Expr eq(const Expr& a, const Expr& b) { return binary(Op::eq, a, b); }
inline Expr select(const Expr& c, const Expr& a, const Expr& b) {
  return make(Op::select, a->held(), {c, a, b});
}

inline std::vector<Expr> extents(std::initializer_list<int> values) {
  std::vector<Expr> result;
  for (const int value : values) result.push_back(int32(value));
  return result;
}

inline BufferPtr tensor(const char* name, DType type, std::vector<Expr> shape, Role role = Role::input,
                        const Loc& at = Loc::current()) {
  return std::make_shared<const Buffer>(Buffer{name, Space::global, role, type, std::move(shape), false, at});
}
inline BufferPtr tile(const char* name, Space space, DType type, std::initializer_list<int> shape,
                      const Loc& at = Loc::current()) {
  return std::make_shared<const Buffer>(Buffer{name, space, Role::tile, type, extents(shape), false, at});
}

inline Access element(const BufferPtr& buffer, std::vector<Expr> index) {
  return {whole(buffer), std::move(index)};
}

// The axes in another order.
inline View transposed(View view) {
  std::swap(view.dims[0].axis, view.dims[1].axis);
  std::swap(view.extents[0], view.extents[1]);
  return view;
}

// The dimension is fixed at `index`; it is the first axis of the view.
inline View indexed(View view, const Expr& index) {
  for (ViewDim& dim : view.dims) {
    if (dim.axis == 0) {
      dim.offset = index;
      dim.low = int32(0);
      dim.high = view.extents[0];
    }
    if (dim.axis >= 0) --dim.axis;
  }
  view.extents.erase(view.extents.begin());
  return view;
}

// The window that begins at `offset` of axis 0.
inline View window(View view, const Expr& offset, int extent) {
  for (ViewDim& dim : view.dims) {
    if (dim.axis == 0) dim.offset = offset;
  }
  view.extents[0] = int32(extent);
  return view;
}

template <class Node>
Stmt st(Node node, const Loc& at = Loc::current()) {
  return statement(std::move(node), at);
}

}  // namespace tegula::ir::testing

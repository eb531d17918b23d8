#include "ir/codes_24.hpp"

namespace tegula::ir {

namespace {

Expr binary(Op op, const Expr& a, const Expr& b, const Loc& at) { return make(op, a->held(), {a, b}, at); }
Expr number(const Expr& like, std::int64_t x, const Loc& at) { return constant(like->held(), x, at); }
Expr equals(const Expr& a, std::int64_t x, const Loc& at) {
  return make(Op::eq, boolean, {a, number(a, x, at)}, at);
}
Expr either(const Expr& condition, const Expr& a, const Expr& b, const Loc& at) {
  return make(Op::select, a->held(), {condition, a, b}, at);
}

}  // namespace

Expr code_24(const Expr& byte, const Expr& group, const Loc& at) {
  const Expr place =
      binary(Op::mul, binary(Op::mod, group, number(group, 2, at), at), number(group, 4, at), at);
  const Expr shift = place->held() == byte->held() ? place : make(Op::cast, byte->held(), {place}, at);
  return binary(Op::bit_and, binary(Op::shr, byte, shift, at), number(byte, 15, at), at);
}

Expr positions_24(const Expr& code, const Loc& at) {
  return either(equals(code, 0, at), number(code, 4, at), code, at);
}

Expr element_24(const Expr& positions, const Expr& first, const Expr& second, int e, const Loc& at) {
  const Expr zero = first->held().is_floating() ? constant(first->held(), 0.0, at) : number(first, 0, at);
  const Expr low = binary(Op::bit_and, positions, number(positions, 3, at), at),
             high = binary(Op::shr, positions, number(positions, 2, at), at);
  return either(equals(low, e, at), first, either(equals(high, e, at), second, zero, at), at);
}

}  // namespace tegula::ir

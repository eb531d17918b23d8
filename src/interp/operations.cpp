#include "interp/operations.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "interp/machine.hpp"

namespace tegula::interp {
namespace {

using ir::Op;
using Run = decltype(Instruction::run);

std::uint32_t either(const Cell& a, const Cell& b) { return a.cause != 0 ? a.cause : b.cause; }

template <class F>
void real_binary(const Instruction& in, Machine& m) {
  const Cell &a = m[in.a], &b = m[in.b];
  Cell result = real_cell(static_cast<double>(static_cast<float>(F()(a.real, b.real))));
  result.cause = either(a, b);
  m[in.dst] = result;
}

template <class F>
void i32_binary(const Instruction& in, Machine& m) {
  const Cell &a = m[in.a], &b = m[in.b];
  const std::int64_t wide = F()(a.integer, b.integer);  // cannot overflow: the operands have 32 bits
  Cell result = integer_cell(static_cast<std::int32_t>(wide));
  result.cause = either(a, b);
  if (result.integer != wide && result.cause == 0) m.fail_overflow(in);
  m[in.dst] = result;
}

// Operations whose result is what T keeps of the 64-bit one.
template <class T, class F>
void wrapped_binary(const Instruction& in, Machine& m) {
  const Cell &a = m[in.a], &b = m[in.b];
  Cell result = integer_cell(static_cast<T>(F()(a.integer, b.integer)));
  result.cause = either(a, b);
  m[in.dst] = result;
}

template <class T, class F>
void division(const Instruction& in, Machine& m) {
  const Cell &a = m[in.a], &b = m[in.b];
  Cell result;
  result.cause = either(a, b);
  if (result.cause == 0 && b.integer == 0)
    result.cause = m.cause_of_division(in.node);
  else if (result.cause == 0)
    result.integer = static_cast<T>(F()(a.integer, b.integer));
  m[in.dst] = result;
}

template <class F>
void compare_integers(const Instruction& in, Machine& m) {
  const Cell &a = m[in.a], &b = m[in.b];
  Cell result = integer_cell(F()(a.integer, b.integer) ? 1 : 0);
  result.cause = either(a, b);
  m[in.dst] = result;
}

template <class F>
void compare_reals(const Instruction& in, Machine& m) {
  const Cell &a = m[in.a], &b = m[in.b];
  Cell result = integer_cell(F()(a.real, b.real) ? 1 : 0);
  result.cause = either(a, b);
  m[in.dst] = result;
}

void select(const Instruction& in, Machine& m) {
  const Cell& condition = m[in.a];
  if (condition.cause != 0)
    m[in.dst].cause = condition.cause;
  else
    m[in.dst] = m[condition.integer != 0 ? in.b : in.c];
}

// The left operand decides if it is `Deciding`.
template <bool Deciding>
void logical(const Instruction& in, Machine& m) {
  const Cell& a = m[in.a];
  m[in.dst] = a.cause != 0 || (a.integer != 0) == Deciding ? a : m[in.b];
}

void logical_not(const Instruction& in, Machine& m) {
  Cell result = integer_cell(m[in.a].integer == 0 ? 1 : 0);
  result.cause = m[in.a].cause;
  m[in.dst] = result;
}

// Float division, exponentials and roots, rounded once from double as in ir::apply.
template <double F(double)>
void real_unary(const Instruction& in, Machine& m) {
  Cell result = real_cell(static_cast<double>(static_cast<float>(F(m[in.a].real))));
  result.cause = m[in.a].cause;
  m[in.dst] = result;
}

void negated(const Instruction& in, Machine& m) {
  Cell result = real_cell(-m[in.a].real);
  result.cause = m[in.a].cause;
  m[in.dst] = result;
}

void multiplied_and_added(const Instruction& in, Machine& m) {
  const Cell &a = m[in.a], &b = m[in.b], &c = m[in.c];
  Cell result =
      real_cell(std::fma(static_cast<float>(a.real), static_cast<float>(b.real), static_cast<float>(c.real)));
  result.cause = a.cause != 0 ? a.cause : either(b, c);
  m[in.dst] = result;
}

// To f32, or to what is held as f32.
template <auto Cell::*Held>
void real_of(const Instruction& in, Machine& m) {
  const double real = static_cast<float>(m[in.a].*Held);
  Cell result = real_cell(in.node->type == f32 ? real : round_to(in.node->type, real));
  result.cause = m[in.a].cause;
  m[in.dst] = result;
}
template <class T>
void integer_of_integer(const Instruction& in, Machine& m) {
  Cell result = integer_cell(static_cast<T>(m[in.a].integer));
  result.cause = m[in.a].cause;
  m[in.dst] = result;
}

// Of 64 bits without a sign, which products of u32 fill.
struct Sum {
  std::int64_t operator()(std::uint64_t a, std::uint64_t b) const { return static_cast<std::int64_t>(a + b); }
};
struct Difference {
  std::int64_t operator()(std::uint64_t a, std::uint64_t b) const { return static_cast<std::int64_t>(a - b); }
};
struct Product {
  std::int64_t operator()(std::uint64_t a, std::uint64_t b) const { return static_cast<std::int64_t>(a * b); }
};
// Counts outside of the width give 0, or the sign.
struct LeftShift {
  std::int64_t operator()(std::int64_t a, std::int64_t n) const {
    return n < 0 || n >= 32 ? 0 : static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << n);
  }
};
struct RightShift {
  std::int64_t operator()(std::int64_t a, std::int64_t n) const {
    return n < 0 || n >= 32 ? (a < 0 ? -1 : 0) : a >> n;
  }
};
struct FloorQuotient {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  }
};
struct FloorRemainder {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a - b * FloorQuotient()(a, b); }
};
struct CeilQuotient {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const { return -FloorQuotient()(-a, b); }
};

struct Max {
  double operator()(double a, double b) const { return std::isnan(b) || a > b ? a : b; }
  std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a > b ? a : b; }
};
struct Min {
  double operator()(double a, double b) const { return std::isnan(b) || a < b ? a : b; }
  std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a < b ? a : b; }
};

Run f32_operation(Op op) {
  switch (op) {
    case Op::add:
      return real_binary<std::plus<>>;
    case Op::sub:
      return real_binary<std::minus<>>;
    case Op::mul:
      return real_binary<std::multiplies<>>;
    case Op::div:
      return real_binary<std::divides<>>;
    case Op::max:
      return real_binary<Max>;
    case Op::min:
      return real_binary<Min>;
    case Op::exp:
      return real_unary<std::exp>;
    case Op::exp2:
      return real_unary<std::exp2>;
    case Op::neg:
      return negated;
    case Op::fma:
      return multiplied_and_added;
    default:
      return nullptr;
  }
}

// Operations on i32 and u32 that cannot overflow.
template <class T>
Run integer_operation(Op op) {
  switch (op) {
    case Op::bit_and:
      return wrapped_binary<T, std::bit_and<>>;
    case Op::bit_or:
      return wrapped_binary<T, std::bit_or<>>;
    case Op::bit_xor:
      return wrapped_binary<T, std::bit_xor<>>;
    case Op::shl:
      return wrapped_binary<T, LeftShift>;
    case Op::shr:
      return wrapped_binary<T, RightShift>;
    case Op::div:
      return division<T, std::divides<>>;
    case Op::mod:
      return division<T, std::modulus<>>;
    case Op::floordiv:
      return division<T, FloorQuotient>;
    case Op::floormod:
      return division<T, FloorRemainder>;
    case Op::ceildiv:
      return division<T, CeilQuotient>;
    case Op::max:
      return wrapped_binary<T, Max>;
    case Op::min:
      return wrapped_binary<T, Min>;
    default:
      return nullptr;
  }
}

Run u32_operation(Op op) {
  switch (op) {
    case Op::add:
      return wrapped_binary<std::uint32_t, Sum>;
    case Op::sub:
      return wrapped_binary<std::uint32_t, Difference>;
    case Op::mul:
      return wrapped_binary<std::uint32_t, Product>;
    default:
      return integer_operation<std::uint32_t>(op);
  }
}

Run i32_operation(Op op) {
  switch (op) {
    case Op::add:
      return i32_binary<std::plus<>>;
    case Op::sub:
      return i32_binary<std::minus<>>;
    case Op::mul:
      return i32_binary<std::multiplies<>>;
    default:
      return integer_operation<std::int32_t>(op);
  }
}

Run conversion(DType from, DType to) {
  if (compute_type(to) == f32) {
    if (!from.is_floating()) return real_of<&Cell::integer>;
    return from == f32 ? real_of<&Cell::real> : nullptr;
  }
  if (from.is_floating()) return nullptr;
  if (to == i32) return integer_of_integer<std::int32_t>;
  if (to == u32) return integer_of_integer<std::uint32_t>;
  return to == i64 ? integer_of_integer<std::int64_t> : nullptr;
}

Run comparison(Op op, bool floating) {
  switch (op) {
    case Op::eq:
      return floating ? compare_reals<std::equal_to<>> : compare_integers<std::equal_to<>>;
    case Op::ne:
      return floating ? compare_reals<std::not_equal_to<>> : compare_integers<std::not_equal_to<>>;
    case Op::lt:
      return floating ? compare_reals<std::less<>> : compare_integers<std::less<>>;
    case Op::le:
      return floating ? compare_reals<std::less_equal<>> : compare_integers<std::less_equal<>>;
    case Op::gt:
      return floating ? compare_reals<std::greater<>> : compare_integers<std::greater<>>;
    case Op::ge:
      return floating ? compare_reals<std::greater_equal<>> : compare_integers<std::greater_equal<>>;
    default:
      return nullptr;
  }
}

Run of_any_type(Op op) {
  switch (op) {
    case Op::select:
      return select;
    case Op::logical_and:
      return logical<false>;
    case Op::logical_or:
      return logical<true>;
    case Op::logical_not:
      return logical_not;
    default:
      return nullptr;
  }
}

}  // namespace

void apply_generic(const Instruction& in, Machine& m) {
  const ir::ExprNode& node = *in.node;
  const Register operands[] = {in.a, in.b, in.c};
  ir::Value values[3];
  std::uint32_t cause = 0;
  const std::size_t count = std::min(node.args.size(), std::size(operands));
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = value_of(node.args[i]->held(), m[operands[i]]);
    if (cause == 0) cause = m[operands[i]].cause;
  }
  bool overflow = false;
  const ir::Value value = ir::apply(node.op, node.type, std::span(values, count), &overflow);
  if (overflow) m.fail_overflow(in);
  m[in.dst] = cell_of(value);
  if (value.invalid) m[in.dst].cause = cause != 0 ? cause : m.cause_of_division(in.node);
}

Run operation_for(const ir::ExprNode& node) {
  Run run = of_any_type(node.op);
  if (run == nullptr && node.op >= Op::eq && node.op <= Op::ge) {
    run = comparison(node.op, node.args[0]->held().is_floating());
  }
  if (run == nullptr && node.type == f32) run = f32_operation(node.op);
  if (run == nullptr && node.type == i32) run = i32_operation(node.op);
  if (run == nullptr && node.type == u32) run = u32_operation(node.op);
  if (node.op == Op::cast) run = conversion(node.args[0]->held(), node.type);
  return run != nullptr ? run : apply_generic;
}

}  // namespace tegula::interp

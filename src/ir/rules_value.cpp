#include <algorithm>
#include <bit>

#include "ir/arithmetic.hpp"
#include "ir/rules.hpp"

namespace tegula::ir {
namespace {

bool is_float(const Expr& e, double value) {
  return is_constant(e) && e->type.is_floating() && e->real == value;
}

// A result that is an error or invalid stays for the executor to report.
Expr fold(const Expr& e, const Facts&) {
  if (!std::all_of(e->args.begin(), e->args.end(), [](const Expr& arg) { return is_constant(arg); }))
    return nullptr;
  std::vector<Value> args;
  for (const Expr& arg : e->args) args.push_back(value_of(arg));
  bool overflow = false;
  const Value result = apply(e->op, e->type, args, &overflow);
  return overflow || result.invalid ? nullptr : constant(result, e->at);
}

Expr only_value(const Expr& e, const Facts& facts) {
  if (e->held().is_floating()) return nullptr;
  const Interval range = bounds(e, facts);
  return range.is_point() ? constant(e->held(), range.low, e->at) : nullptr;
}

// x·1 and x/1 change no float, x+0 changes −0.
Expr float_identity(const Expr& e, const Facts&) {
  if (!e->type.is_floating()) return nullptr;
  if ((e->op == Op::mul || e->op == Op::div) && is_float(e->args[1], 1)) return e->args[0];
  return e->op == Op::mul && is_float(e->args[0], 1) ? e->args[1] : nullptr;
}

Expr zero_or_one(const Expr& e, const Facts&) {
  if (!e->type.is_integer() || arity_of(e->op) != 2) return nullptr;
  const Expr &a = e->args[0], &b = e->args[1];
  const bool zero_a = is_constant(a, 0), zero_b = is_constant(b, 0);
  switch (e->op) {
    case Op::add:
    case Op::bit_or:
    case Op::bit_xor:
      if (zero_a) return b;
      return zero_b ? a : nullptr;
    case Op::sub:
    case Op::shl:
    case Op::shr:
      return zero_b ? a : nullptr;
    case Op::mul:
      if (zero_a || is_constant(b, 1)) return a;
      return zero_b || is_constant(a, 1) ? b : nullptr;
    case Op::bit_and:
      if (zero_a) return a;
      return zero_b ? b : nullptr;
    default:
      return nullptr;
  }
}

// x & 255 where x is in [0, 255].
Expr mask(const Expr& e, const Facts& facts) {
  const Expr &a = e->args[0], &b = e->args[1];
  if (equal(a, b)) return a;
  if (!is_constant(b)) return nullptr;
  const std::int64_t ones = constant_value(b);
  if (ones < 0 || ones == INT64_MAX || !std::has_single_bit(static_cast<std::uint64_t>(ones) + 1))
    return nullptr;
  return Interval{0, ones}.contains(bounds(a, facts)) ? a : nullptr;
}

Expr undone(const Expr& e, const Facts&) { return e->args[0]->op == e->op ? e->args[0]->args[0] : nullptr; }

Expr idempotent(const Expr& e, const Facts&) { return e->args[0]->op == e->op ? e->args[0] : nullptr; }

// Conversions that keep every value the operand can have.
Expr cast(const Expr& e, const Facts& facts) {
  const Expr& from = e->args[0];
  const DType to = e->type, held = from->held();
  if (to == held) return from;
  if (from->op == Op::cast && from->type == to) return from;
  if (to.is_floating() || held.is_floating() || to.is_boolean() || held.is_boolean()) return nullptr;
  if (compute_type(to) == held) return values_of(to).contains(bounds(from, facts)) ? from : nullptr;
  if (from->op != Op::cast || from->args[0]->held() != to) return nullptr;
  const Expr& source = from->args[0];
  return values_of(from->type).contains(bounds(source, facts)) ? source : nullptr;
}

Expr bitcast(const Expr& e, const Facts&) {
  const Expr& from = e->args[0];
  if (e->type == from->held()) return from;
  return from->op == Op::bitcast && from->args[0]->held() == e->type ? from->args[0] : nullptr;
}

const RewriteRule value_table[] = {
    {"fold constants", Op::add, Op::ceil, fold},
    {"only one value", Op::variable, Op::bitcast, only_value},
    {"multiply or divide a float by 1", Op::mul, Op::div, float_identity},
    {"zero and one", Op::add, Op::shr, zero_or_one},
    {"mask that keeps all bits", Op::bit_and, Op::bit_and, mask},
    {"negate twice", Op::neg, Op::neg, undone},
    {"complement twice", Op::bit_not, Op::bit_not, undone},
    {"absolute value twice", Op::abs, Op::abs, idempotent},
    {"round twice", Op::round, Op::ceil, idempotent},
    {"conversion that keeps the value", Op::cast, Op::cast, cast},
    {"bits and back", Op::bitcast, Op::bitcast, bitcast},
};

}  // namespace

std::span<const RewriteRule> value_rules() { return value_table; }

}  // namespace tegula::ir

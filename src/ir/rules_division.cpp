#include "ir/rules.hpp"

namespace tegula::ir {
namespace {

bool is_remainder(Op op) { return op == Op::mod || op == Op::floormod; }

// A number a = c · quotient + remainder, with 0 <= constant of remainder < c.
struct Split {
  Affine quotient, remainder;
};

Split split(const Affine& a, std::int64_t c) {
  Split result;
  for (const Affine::Term& term : a.terms) {
    if (term.factor % c == 0) {
      result.quotient.terms.push_back({term.atom, term.factor / c});
    } else {
      result.remainder.terms.push_back(term);
    }
  }
  result.remainder.constant = (a.constant % c + c) % c;
  result.quotient.constant = a.constant / c - (a.constant % c < 0 ? 1 : 0);
  return result;
}

struct Division {
  const Expr& e;
  const Facts& facts;
  std::int64_t c;
  Affine a;
  Split divided;
  bool not_negative;

  Expr number(const Affine& value) const { return to_expr(value, e->type, e->at); }
  Expr again(Op op, const Expr& x) const {
    return make(op, e->type, {x, constant(e->type, c, e->at)}, e->at);
  }

  // Where quotients toward zero are those that round down.
  bool rounds_down() const { return e->op == Op::floordiv || e->op == Op::floormod || not_negative; }

  Expr exact() const {
    const std::int64_t g = divisor(a, facts);
    if (g % c != 0) return nullptr;
    if (is_remainder(e->op)) return constant(e->type, 0, e->at);
    if (divided.remainder.is_constant() && divided.remainder.constant == 0) return number(divided.quotient);
    return e->op == Op::div ? nullptr : again(Op::div, e->args[0]);
  }

  // The remainder is smaller than the divisor.
  Expr whole() const {
    for (const bool up : {false, true}) {
      Affine remainder = divided.remainder, quotient = divided.quotient;
      if (up) remainder.constant -= c;
      if (up && __builtin_add_overflow(quotient.constant, 1, &quotient.constant)) return nullptr;
      const Interval range = bounds(remainder, facts);
      if (e->op == Op::ceildiv ? Interval{1 - c, 0}.contains(range)
                               : rounds_down() && Interval{0, c - 1}.contains(range)) {
        return number(is_remainder(e->op) ? remainder : quotient);
      }
    }
    return nullptr;
  }

  // What the divisor divides is taken out.
  Expr partial() const {
    if (divided.quotient.is_constant() || divided.remainder.terms.empty()) return nullptr;
    const bool toward_zero = e->op == Op::div || e->op == Op::mod;
    const Interval range = bounds(divided.remainder, facts);
    if (toward_zero && !(not_negative && range.low >= 0)) return nullptr;
    const bool overflows =
        range.low == INT64_MIN || range.high == INT64_MAX || !values_of(e->type).contains(range);
    if (overflows) return nullptr;
    const Expr remainder = number(divided.remainder), quotient = number(divided.quotient);
    if (!remainder || !quotient) return nullptr;
    const Expr inner = again(e->op, remainder);
    const Expr result = is_remainder(e->op) ? inner : make(Op::add, e->type, {quotient, inner}, e->at);
    return result->size <= e->size ? result : nullptr;
  }

  // Division toward zero is the one that processors have.
  Expr cheaper() const {
    if (!not_negative || (e->op != Op::floordiv && e->op != Op::floormod)) return nullptr;
    return again(e->op == Op::floordiv ? Op::div : Op::mod, e->args[0]);
  }
};

constexpr std::int64_t largest_divisor = std::int64_t{1} << 31;

Expr by_constant(const Expr& e, const Facts& facts) {
  if (!has_affine_form(e->type) || !is_constant(e->args[1])) return nullptr;
  const std::int64_t c = constant_value(e->args[1]);
  if (c <= 0 || c > largest_divisor) return nullptr;
  const Affine a = affine(e->args[0]);
  const Division division{e, facts, c, a, split(a, c), bounds(e->args[0], facts).low >= 0};
  if (Expr result = division.exact()) return result;
  if (Expr result = division.whole()) return result;
  if (Expr result = division.partial()) return result;
  return division.cheaper();
}

// (x / 4) / 8
Expr divided_twice(const Expr& e, const Facts&) {
  const Expr& a = e->args[0];
  if (!e->type.is_integer() || a->op != e->op || !is_constant(a->args[1]) || !is_constant(e->args[1]))
    return nullptr;
  const std::int64_t inner = constant_value(a->args[1]), outer = constant_value(e->args[1]);
  std::int64_t product = 0;
  if (inner <= 0 || outer <= 0 || __builtin_mul_overflow(inner, outer, &product)) return nullptr;
  if (!values_of(e->type).contains(product)) return nullptr;
  return make(e->op, e->type, {a->args[0], constant(e->type, product, e->at)}, e->at);
}

// 0 <= x < y
Expr smaller_than_divisor(const Expr& e, const Facts& facts) {
  if (!e->type.is_integer() || e->op == Op::ceildiv) return nullptr;
  const Expr &x = e->args[0], &y = e->args[1];
  if (bounds(x, facts).low < 0) return nullptr;
  bool smaller = bounds(x, facts).high < bounds(y, facts).low;
  if (!smaller && has_affine_form(e->type)) {
    const auto d = difference(affine(y), affine(x));
    smaller = d && bounds(*d, facts).low > 0;
  }
  if (!smaller) return nullptr;
  return is_remainder(e->op) ? x : constant(e->type, 0, e->at);
}

Expr of_zero_or_by_one(const Expr& e, const Facts&) {
  if (!e->type.is_integer()) return nullptr;
  if (is_constant(e->args[0], 0)) return e->args[0];
  if (!is_constant(e->args[1], 1)) return nullptr;
  return is_remainder(e->op) ? constant(e->type, 0, e->at) : e->args[0];
}

const RewriteRule division_table[] = {
    {"divide zero or by one", Op::div, Op::ceildiv, of_zero_or_by_one},
    {"divide a sum by a constant", Op::div, Op::ceildiv, by_constant},
    {"divide twice", Op::div, Op::div, divided_twice},
    {"divide twice, rounding", Op::floordiv, Op::floordiv, divided_twice},
    {"divide twice, rounding up", Op::ceildiv, Op::ceildiv, divided_twice},
    {"divide by something larger", Op::div, Op::ceildiv, smaller_than_divisor},
};

}  // namespace

std::span<const RewriteRule> division_rules() { return division_table; }

}  // namespace tegula::ir

#include <algorithm>
#include <numeric>

#include "ir/rules.hpp"

namespace tegula::ir {
namespace {

Expr shorter(const Expr& candidate, const Expr& e) {
  return candidate && candidate->size < e->size ? candidate : nullptr;
}

Expr collect(const Expr& e, const Facts&) {
  if (!has_affine_form(e->type)) return nullptr;
  return shorter(to_expr(affine(e), e->type, e->at), e);
}

// a < b and the like from the range of a − b: 1 or 0, -1 if it decides nothing.
int decided(Op op, const Interval& d) {
  const auto answer = [](bool yes, bool no) { return yes ? 1 : no ? 0 : -1; };
  switch (op) {
    case Op::lt:
      return answer(d.high < 0, d.low >= 0);
    case Op::le:
      return answer(d.high <= 0, d.low > 0);
    case Op::gt:
      return answer(d.low > 0, d.high <= 0);
    case Op::ge:
      return answer(d.low >= 0, d.high < 0);
    case Op::eq:
      return answer(d.is_point() && d.low == 0, !d.contains(0));
    default:
      return answer(!d.contains(0), d.is_point() && d.low == 0);
  }
}

std::int64_t factors(const Affine& a) {
  std::int64_t result = 0;
  for (const Affine::Term& term : a.terms) result = std::gcd(result, term.factor);
  return result;
}

// The constant k' for which Σ + k' compares with 0 as g·Σ + k does, g > 1; none if g·Σ + k is never 0.
std::optional<std::int64_t> reduced(Op op, std::int64_t k, std::int64_t g) {
  const std::int64_t low = k / g - (k % g != 0 && k < 0 ? 1 : 0), high = low + (k % g != 0 ? 1 : 0);
  if (op == Op::lt || op == Op::ge) return low;
  if (op == Op::le || op == Op::gt) return high;
  return low == high ? std::optional(low) : std::nullopt;
}

// Whether the sum can be computed: moving terms from one side of a comparison to the other makes new sums,
// and these must not overflow where the old ones did not.
bool is_safe(const Affine& a, DType type, const Facts& facts) {
  if (a.is_constant() || (a.terms.size() == 1 && a.terms[0].factor == 1 && a.constant == 0)) return true;
  const Interval range = bounds(a, facts), all = values_of(type);
  return all.contains(range) && range.low != INT64_MIN && range.high != INT64_MAX;
}

// The terms with positive factors on one side, the others on the other.
Expr two_sided(Op op, const Affine& d, DType type, const Facts& facts, const Loc& at) {
  Affine left, right;
  for (const Affine::Term& term : d.terms) {
    if (term.factor > 0) {
      left.terms.push_back(term);
    } else {
      right.terms.push_back({term.atom, -term.factor});
    }
  }
  (d.constant > 0 ? left : right).constant = d.constant > 0 ? d.constant : -d.constant;
  if (!is_safe(left, type, facts) || !is_safe(right, type, facts)) return nullptr;
  const Expr a = to_expr(left, type, at), b = to_expr(right, type, at);
  return a && b ? make(op, boolean, {a, b}, at) : nullptr;
}

bool can_be_negated(const Affine& a) {
  return a.constant != INT64_MIN && std::all_of(a.terms.begin(), a.terms.end(),
                                                [](const Affine::Term& t) { return t.factor != INT64_MIN; });
}

Expr compare_sums(const Expr& e, const Facts& facts) {
  const DType type = e->args[0]->held();
  if (!has_affine_form(type)) return nullptr;
  auto d = difference(affine(e->args[0]), affine(e->args[1]));
  if (!d || !can_be_negated(*d)) return nullptr;
  if (const int answer = decided(e->op, bounds(*d, facts)); answer >= 0) return truth(answer == 1, e->at);
  if (const std::int64_t g = factors(*d); g > 1) {
    const auto constant = reduced(e->op, d->constant, g);
    if (!constant) return truth(e->op == Op::ne, e->at);
    for (Affine::Term& term : d->terms) term.factor /= g;
    d->constant = *constant;
  }
  return shorter(two_sided(e->op, *d, type, facts, e->at), e);
}

// A promise that a number is a multiple decides some equalities.
Expr compare_multiples(const Expr& e, const Facts& facts) {
  if (!has_affine_form(e->args[0]->held())) return nullptr;
  const auto d = difference(affine(e->args[0]), affine(e->args[1]));
  if (!d) return nullptr;
  const std::int64_t g = divisor({d->terms, 0}, facts);
  return g > 1 && d->constant % g != 0 ? truth(e->op == Op::ne, e->at) : nullptr;
}

Interval apart(const Interval& a, const Interval& b) {
  if (a.high < b.low) return {INT64_MIN, -1};
  if (a.low > b.high) return {1, INT64_MAX};
  return {a.high <= b.low ? INT64_MIN : a.low >= b.high ? 0 : INT64_MIN, a.high <= b.low ? 0 : INT64_MAX};
}

Expr compare_ranges(const Expr& e, const Facts& facts) {
  if (e->args[0]->held().is_floating()) return nullptr;
  const int answer = decided(e->op, apart(bounds(e->args[0], facts), bounds(e->args[1], facts)));
  return answer >= 0 ? truth(answer == 1, e->at) : nullptr;
}

// A range in which a − b is, as far as signs go.
Interval distance(const Expr& a, const Expr& b, const Facts& facts) {
  if (has_affine_form(a->held())) {
    if (const auto d = difference(affine(a), affine(b))) return bounds(*d, facts);
  }
  return apart(bounds(a, facts), bounds(b, facts));
}

Expr least_or_greatest(const Expr& e, const Facts& facts) {
  const Expr &a = e->args[0], &b = e->args[1];
  if (equal(a, b)) return a;
  if (e->type.is_floating()) return nullptr;
  const Interval d = distance(a, b, facts);
  const bool is_min = e->op == Op::min;
  if (d.high <= 0) return is_min ? a : b;
  if (d.low >= 0) return is_min ? b : a;
  return nullptr;
}

// min(min(x, 3), 5)
Expr nested_limits(const Expr& e, const Facts&) {
  const Expr &a = e->args[0], &b = e->args[1];
  if (e->type.is_floating() || a->op != e->op || !is_constant(b) || !is_constant(a->args[1])) return nullptr;
  const std::int64_t x = constant_value(a->args[1]), y = constant_value(b);
  const std::int64_t limit = e->op == Op::min ? std::min(x, y) : std::max(x, y);
  return make(e->op, e->type, {a->args[0], constant(e->type, limit, e->at)}, e->at);
}

const RewriteRule sum_table[] = {
    {"collect a sum", Op::add, Op::mul, collect},
    {"collect a negated sum", Op::neg, Op::neg, collect},
    {"compare sums", Op::eq, Op::ge, compare_sums},
    {"compare multiples", Op::eq, Op::ne, compare_multiples},
    {"compare ranges", Op::eq, Op::ge, compare_ranges},
    {"min and max of ordered values", Op::min, Op::max, least_or_greatest},
    {"limits of limits", Op::min, Op::max, nested_limits},
};

}  // namespace

std::span<const RewriteRule> sum_rules() { return sum_table; }

}  // namespace tegula::ir

#include <numeric>

#include "ir/bounds.hpp"
#include "ir/opposite.hpp"

namespace tegula::ir {
namespace {

// More conditions than these make conclusions slow.
constexpr std::size_t most_conditions = 64;
constexpr int largest_definition = 32;

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

}  // namespace

Interval intersection(const Interval& a, const Interval& b) {
  return {std::max(a.low, b.low), std::min(a.high, b.high)};
}

Interval values_of(DType type) {
  switch (type.code) {
    case TypeCode::boolean:
      return {0, 1};
    case TypeCode::i8:
      return {INT8_MIN, INT8_MAX};
    case TypeCode::i16:
      return {INT16_MIN, INT16_MAX};
    case TypeCode::i32:
      return {INT32_MIN, INT32_MAX};
    case TypeCode::u8:
      return {0, UINT8_MAX};
    case TypeCode::u32:
      return {0, UINT32_MAX};
    default:
      return {};
  }
}

void Facts::add_range(const VariablePtr& variable, const Interval& range) {
  Interval& known = ranges_[variable];
  known = intersection(known, range);
}

void Facts::add_multiple(const VariablePtr& variable, std::int64_t multiple) {
  if (multiple > 1) multiples_[variable] = multiple;
}

void Facts::add_stated(const Expr& atom, const Interval& range) {
  if (atom->op == Op::variable) return add_range(atom->variable, range);
  for (auto& [known, interval] : atoms_) {
    if (!equal(known, atom)) continue;
    interval = intersection(interval, range);
    return;
  }
  if (atoms_.size() < most_conditions) atoms_.push_back({atom, range});
}

void Facts::add_not_negative(const Affine& a) {
  if (wraps_) return;  // a sum that is not negative may have come about by overflow
  if (a.is_constant() || a.constant == INT64_MIN) return;
  if (a.terms.size() == 1) {
    const auto& [atom, factor] = a.terms[0];
    if (factor == INT64_MIN) return;
    if (factor > 0) return add_stated(atom, {-floor_quotient(a.constant, factor), INT64_MAX});
    return add_stated(atom, {INT64_MIN, floor_quotient(a.constant, -factor)});
  }
  if (not_negative_.size() < most_conditions) not_negative_.push_back(a);
}

void Facts::assume(const Expr& condition, bool truth) {
  if (condition->op == Op::variable) return add_range(condition->variable, {truth, truth});
  if (condition->op == Op::logical_not) return assume(condition->args[0], !truth);
  if (condition->op == (truth ? Op::logical_and : Op::logical_or)) {
    assume(condition->args[0], truth);
    assume(condition->args[1], truth);
  }
  if (condition->op < Op::eq || condition->op > Op::ge) return;
  const Expr &a = condition->args[0], &b = condition->args[1];
  if (!has_affine_form(a->held())) return;
  const Op op = truth ? condition->op : opposite(condition->op);
  const auto below = difference(affine(b), affine(a)), above = difference(affine(a), affine(b));
  const Affine one{{}, 1};
  const auto add = [&](const std::optional<Affine>& form, bool strictly) {
    const auto sum_ = form && strictly ? difference(*form, one) : form;
    if (sum_) add_not_negative(*sum_);
  };
  if (op == Op::lt || op == Op::le || op == Op::eq) add(below, op == Op::lt);
  if (op == Op::gt || op == Op::ge || op == Op::eq) add(above, op == Op::gt);
}

void Facts::add_index(const VariablePtr& index, const Expr& begin, const Expr& end) {
  const auto first = affine(variable(index)), low = affine(begin), high = affine(end);
  const Interval from = bounds(begin, *this), to = bounds(end, *this);
  add_range(index, {from.low, to.high == INT64_MAX || to.high == INT64_MIN ? to.high : to.high - 1});
  if (const auto above = difference(first, low)) add_not_negative(*above);
  const auto below = difference(high, first);
  if (!below) return;
  if (const auto strictly = difference(*below, {{}, 1})) add_not_negative(*strictly);
  add_below_quotient(first, high);
}

// index < n / c: c whole indices below n.
void Facts::add_below_quotient(const Affine& index, const Affine& end) {
  if (end.terms.size() != 1 || end.terms[0].factor != 1 || end.constant != 0) return;
  const Expr& quotient = end.terms[0].atom;
  if (quotient->op != Op::div || !is_constant(quotient->args[1])) return;
  const std::int64_t c = constant_value(quotient->args[1]);
  if (c <= 1 || c > INT32_MAX || bounds(quotient->args[0], *this).low < 0) return;
  Affine taken;
  for (const Affine::Term& term : index.terms) taken.terms.push_back({term.atom, term.factor * c});
  taken.constant = (index.constant + 1) * c;
  if (const auto left = difference(affine(quotient->args[0]), taken)) add_not_negative(*left);
}

void Facts::define(const VariablePtr& v, const Expr& value) {
  if (value->held().is_floating() || value->size > largest_definition) return;
  add_range(v, bounds(value, *this));
  if (!has_affine_form(v->type)) return;
  const auto above = difference(affine(variable(v)), affine(value)),
             below = difference(affine(value), affine(variable(v)));
  if (above) add_not_negative(*above);
  if (below) add_not_negative(*below);
}

Interval Facts::stated(const Expr& atom) const {
  if (atom->op == Op::variable) {
    const auto found = ranges_.find(atom->variable);
    return found == ranges_.end() ? Interval{} : found->second;
  }
  for (const auto& [known, interval] : atoms_) {
    if (known->size == atom->size && equal(known, atom)) return interval;
  }
  return {};
}

std::int64_t Facts::multiple_of(const VariablePtr& variable) const {
  const auto found = multiples_.find(variable);
  return found == multiples_.end() ? 1 : found->second;
}

std::int64_t divisor(const Affine& a, const Facts& facts) {
  if (a.constant == INT64_MIN) return 1;
  std::int64_t result = a.constant;
  for (const auto& [atom, factor] : a.terms) {
    std::int64_t multiple = atom->op == Op::variable ? facts.multiple_of(atom->variable) : 1;
    if (__builtin_mul_overflow(multiple, factor, &multiple)) multiple = 1;
    if (multiple == INT64_MIN) multiple = 1;
    result = std::gcd(result, multiple);
  }
  return result;
}

}  // namespace tegula::ir

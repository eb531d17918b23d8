#include "ir/bounds.hpp"

#include <algorithm>
#include <bit>

#include "ir/wide.hpp"

namespace tegula::ir {
namespace {

constexpr std::int64_t no_low = INT64_MIN, no_high = INT64_MAX;

std::int64_t narrowed(Wide x) {
  return x <= no_low ? no_low : x >= no_high ? no_high : static_cast<std::int64_t>(x);
}

bool is_finite(const Interval& a) { return a.low != no_low && a.high != no_high; }

Interval plus(const Interval& a, const Interval& b) {
  return {a.low == no_low || b.low == no_low ? no_low : narrowed(Wide{a.low} + b.low),
          a.high == no_high || b.high == no_high ? no_high : narrowed(Wide{a.high} + b.high)};
}

Interval negated(const Interval& a) {
  return {a.high == no_high ? no_low : narrowed(-Wide{a.high}),
          a.low == no_low ? no_high : narrowed(-Wide{a.low})};
}

Interval times(const Interval& a, std::int64_t factor) {
  if (factor < 0) return factor == INT64_MIN ? Interval{} : times(negated(a), -factor);
  return {a.low == no_low ? no_low : narrowed(Wide{a.low} * factor),
          a.high == no_high ? no_high : narrowed(Wide{a.high} * factor)};
}

Interval hull(const Interval& a, const Interval& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

// The hull of f at the four corners; for operations that are monotonic in each operand.
template <class F>
Interval corners(const Interval& a, const Interval& b, F f) {
  const Wide values[] = {f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)};
  return {narrowed(*std::min_element(values, values + 4)), narrowed(*std::max_element(values, values + 4))};
}

Interval product(const Interval& a, const Interval& b) {
  if (a.is_point()) return times(b, a.low);
  if (b.is_point()) return times(a, b.low);
  if (!is_finite(a) || !is_finite(b)) return a.low >= 0 && b.low >= 0 ? Interval{0, no_high} : Interval{};
  return corners(a, b, [](Wide x, Wide y) { return x * y; });
}

Wide quotient(Op op, Wide a, Wide b) {
  if (op == Op::div) return a / b;
  return op == Op::floordiv ? floor_quotient(a, b) : -floor_quotient(-a, b);
}

// Greatest distance from zero, no_high if there is no limit.
std::int64_t magnitude(const Interval& a) {
  return is_finite(a) ? narrowed(std::max(-Wide{a.low}, Wide{a.high})) : no_high;
}

// A zero divisor gives an invalid value, which no interval needs to contain.
Interval nonzero(const Interval& b) { return {b.low == 0 ? 1 : b.low, b.high == 0 ? -1 : b.high}; }

Interval division(Op op, const Interval& a, const Interval& divisor) {
  const Interval b = nonzero(divisor);
  if (b.low > b.high) return {};
  if (b.low > 0 || b.high < 0) {
    Interval result = corners(a, b, [&](Wide x, Wide y) { return quotient(op, x, y); });
    if (a.low == no_low || b.low < 0) result.low = is_finite(a) ? result.low : no_low;
    if (a.high == no_high || b.low < 0) result.high = is_finite(a) ? result.high : no_high;
    return result;
  }
  const std::int64_t most = magnitude(a);
  return most == no_high ? Interval{} : Interval{-most, most};
}

Interval remainder(Op op, const Interval& a, const Interval& divisor) {
  const Interval b = nonzero(divisor);
  if (b.low > b.high) return {};
  if (b.low > 0 && a.low >= 0 && a.high < b.low) return a;
  const std::int64_t most = magnitude(b) == no_high ? no_high : magnitude(b) - 1;
  Interval result{most == no_high ? no_low : -most, most};
  if (op == Op::floormod) {
    if (b.low > 0) result.low = 0;
    if (b.high < 0) result.high = 0;
  } else {
    if (a.low >= 0) result = {0, std::min(most, a.high)};
    if (a.high <= 0) result = {std::max(result.low, a.low), 0};
  }
  return result;
}

// The least 2^n - 1 that is not smaller.
std::int64_t all_ones(std::int64_t x) {
  return static_cast<std::int64_t>((std::uint64_t{1} << std::bit_width(static_cast<std::uint64_t>(x))) - 1);
}

Interval bits(Op op, const Interval& a, const Interval& b) {
  if (op == Op::bit_and) {
    if (a.low >= 0 && b.low >= 0) return {0, std::min(a.high, b.high)};
    if (a.low >= 0) return {0, a.high};
    return b.low >= 0 ? Interval{0, b.high} : Interval{};
  }
  if (a.low < 0 || b.low < 0 || a.high == no_high || b.high == no_high) return {};
  return {op == Op::bit_or ? std::max(a.low, b.low) : 0, all_ones(std::max(a.high, b.high))};
}

Interval shifted(Op op, DType type, const Interval& a, const Interval& count) {
  const bool known = count.is_point() && count.low >= 0 && count.low < type.bits();
  if (op == Op::shl)
    return known && is_finite(a) ? times(a, std::int64_t{1} << std::min<std::int64_t>(count.low, 62))
                                 : Interval{};
  if (known && is_finite(a)) return {a.low >> count.low, a.high >> count.low};
  return a.low >= 0 ? Interval{0, a.high} : Interval{};
}

Interval absolute(const Interval& a) {
  if (a.low >= 0) return a;
  const std::int64_t most = magnitude(a);
  return {a.high < 0 ? negated(a).low : 0, most};
}

bool may_wrap_silently(DType type, Op op) { return type == u32 || op == Op::shl; }

class Bounds {
 public:
  // Conclusions from sums that are not negative are drawn once, not from each other.
  Bounds(const Facts& facts, bool conclude) : facts_(facts), conclude_(conclude) {}

  Interval of(const Expr& e) {
    if (e->op == Op::constant) return e->type.is_floating() ? Interval{} : Interval{e->integer, e->integer};
    if (e->held().is_floating()) return {};
    if (const auto found = known_.find(e.get()); found != known_.end()) return found->second;
    const Interval all = values_of(compute_type(e->type));
    Interval result = computed(e);
    if (!all.contains(result)) result = wraps(e) ? all : intersection(all, result);
    if ((facts_.wraps() || may_wrap_silently(e->type, e->op)) && !is_finite(result)) result = all;
    result = intersection(result, facts_.stated(e));
    if (has_affine_form(e->type) && is_sum(e) && !facts_.wraps()) result = intersection(result, of_sum(e));
    if (result.low > result.high) result = all;
    return known_[e.get()] = result;
  }

  Interval of(const Affine& a) { return intersection(plain(a), concluded(a)); }

 private:
  static bool is_sum(const Expr& e) {
    return e->op == Op::variable || e->op == Op::add || e->op == Op::sub || e->op == Op::mul ||
           e->op == Op::neg;
  }
  // Whether a result outside the type is another value of the type, and no error. The smallest integer
  // divided by -1 is, too.
  bool wraps(const Expr& e) const {
    return facts_.wraps() || may_wrap_silently(e->type, e->op) || e->op == Op::div || e->op == Op::floordiv ||
           e->op == Op::ceildiv || e->op == Op::cast || e->op == Op::bitcast;
  }

  // A product of variables is its own only term; its range is known from its operands.
  Interval of_sum(const Expr& e) {
    const Affine a = affine(e);
    const bool itself = a.terms.size() == 1 && a.terms[0].atom == e;
    return itself ? concluded(a) : of(a);
  }

  Interval concluded(const Affine& a) {
    Interval result;
    if (!conclude_) return result;
    Bounds simple(facts_, false);
    for (const Affine& fact : facts_.not_negative()) {
      const auto less = difference(a, fact), total = sum(a, fact, 1);
      const std::size_t apart = a.terms.size() + fact.terms.size();
      if (less && less->terms.size() < apart) result.low = std::max(result.low, simple.plain(*less).low);
      if (total && total->terms.size() < apart)
        result.high = std::min(result.high, simple.plain(*total).high);
    }
    return result;
  }

  Interval plain(const Affine& a) {
    Interval result{a.constant, a.constant};
    for (const auto& [atom, factor] : a.terms) {
      const Interval values = atom->op == Op::variable ? variable_range(atom) : of(atom);
      result = plus(result, times(values, factor));
    }
    return result;
  }

  Interval variable_range(const Expr& e) {
    Interval range = intersection(values_of(e->type), facts_.stated(e));
    if (e->variable->kind == VariableKind::dim || e->variable->kind == VariableKind::processors) {
      range = intersection(range, {0, no_high});
    }
    return range.low > range.high ? values_of(e->type) : range;
  }

  // Executors may take any value for that of a division by zero.
  bool may_be_invalid(const Interval& divisor) const { return facts_.wraps() && divisor.contains(0); }

  Interval cast(const Expr& e) {
    const Expr& from = e->args[0];
    if (from->held().is_floating()) return values_of(e->type);
    const Interval inner = of(from), all = values_of(e->type);
    if (all.contains(inner)) return inner;
    return all;
  }

  Interval computed(const Expr& e) {
    const auto arg = [&](std::size_t i) { return of(e->args[i]); };
    switch (e->op) {
      case Op::variable:
        return variable_range(e);
      case Op::add:
        return plus(arg(0), arg(1));
      case Op::sub:
        return plus(arg(0), negated(arg(1)));
      case Op::mul:
        return product(arg(0), arg(1));
      case Op::neg:
        return negated(arg(0));
      case Op::abs:
        return absolute(arg(0));
      case Op::div:
      case Op::floordiv:
      case Op::ceildiv:
        return may_be_invalid(arg(1)) ? Interval{} : division(e->op, arg(0), arg(1));
      case Op::mod:
      case Op::floormod:
        return may_be_invalid(arg(1)) ? Interval{} : remainder(e->op, arg(0), arg(1));
      case Op::min:
        return {std::min(arg(0).low, arg(1).low), std::min(arg(0).high, arg(1).high)};
      case Op::max:
        return {std::max(arg(0).low, arg(1).low), std::max(arg(0).high, arg(1).high)};
      case Op::bit_and:
      case Op::bit_or:
      case Op::bit_xor:
        return bits(e->op, arg(0), arg(1));
      case Op::popcount:
        return {0, e->type.bits()};
      case Op::shl:
      case Op::shr:
        return shifted(e->op, e->type, arg(0), arg(1));
      case Op::select:
        return hull(arg(1), arg(2));
      case Op::cast:
        return cast(e);
      default:
        return {};
    }
  }

  const Facts& facts_;
  bool conclude_;
  std::unordered_map<const ExprNode*, Interval> known_;
};

}  // namespace

Interval bounds(const Expr& e, const Facts& facts) { return Bounds(facts, true).of(e); }
Interval bounds(const Affine& a, const Facts& facts) { return Bounds(facts, true).of(a); }

}  // namespace tegula::ir

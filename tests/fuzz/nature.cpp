#include "fuzz/nature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ir/bounds.hpp"

namespace tegula::fuzz {
namespace {

using ir::Op;
using Wide = __int128;

// Bits of the significand, and the exponents of the smallest subnormal and of the first power of two that
// is too large.
struct Format {
  int digits, smallest, end;
};
Format format_of(DType type) {
  switch (type.code) {
    case TypeCode::e4m3:
      return {4, -9, 8};
    case TypeCode::e5m2:
      return {3, -16, 15};
    case TypeCode::f16:
      return {11, -24, 15};
    case TypeCode::bf16:
      return {8, -133, 127};
    case TypeCode::f64:
      return {53, -1074, 1023};
    default:
      return {24, -149, 127};
  }
}

double unit(DType type) { return std::ldexp(1.0, 1 - format_of(type).digits); }

Nature float_of_any(bool product) {
  Nature result;
  result.product = product;
  return result;
}

// The exact result of an operation on dyadic numbers, if the type can hold it.
std::optional<Nature> held_dyadic(int step, double bound, bool loose_zero, DType type) {
  const Format format = format_of(type);
  if (step < format.smallest || bound > std::ldexp(1.0, std::min(step + format.digits, format.end)))
    return std::nullopt;
  Nature result = dyadic(step, bound);
  result.loose_zero = loose_zero;
  return result;
}

Nature within(Wide low, Wide high, DType type, bool* overflow) {
  const ir::Interval all = ir::values_of(type);
  if (low >= all.low && high <= all.high)
    return integers(static_cast<std::int64_t>(low), static_cast<std::int64_t>(high));
  if (type.kind() == Kind::integer && overflow != nullptr) *overflow = true;
  return anything(type);
}

template <class F>
Nature corners(const Nature& a, const Nature& b, DType type, bool* overflow, F f) {
  const Wide c[] = {f(Wide{a.low}, Wide{b.low}), f(Wide{a.low}, Wide{b.high}), f(Wide{a.high}, Wide{b.low}),
                    f(Wide{a.high}, Wide{b.high})};
  return within(*std::min_element(c, c + 4), *std::max_element(c, c + 4), type, overflow);
}

void divide(const ir::ExprNode& node, const Nature& a, const Nature& b, Result& result) {
  if (contains_zero(b)) {
    result.nature = anything(node.type);
    result.may_be_invalid = true;
    return;
  }
  const Wide most = std::max(Wide{a.high}, -Wide{a.low}), by = std::max(Wide{b.high}, -Wide{b.low}) - 1;
  const bool is_natural = a.low >= 0 && b.low > 0;
  switch (node.op) {
    case Op::mod:
      result.nature = within(a.low >= 0 ? 0 : -by, a.high <= 0 ? 0 : by, node.type, nullptr);
      break;
    case Op::floormod:
      result.nature = within(b.low > 0 ? 0 : -by, b.high < 0 ? 0 : by, node.type, nullptr);
      break;
    default:
      result.nature = within(is_natural ? 0 : -most, most, node.type, &result.may_overflow);
  }
}

Result integer_operation(const ir::ExprNode& node, std::span<const Nature> args) {
  Result result;
  const Nature &a = args[0], &b = args.size() > 1 ? args[1] : a;
  bool* overflow = &result.may_overflow;
  switch (node.op) {
    case Op::add:
      result.nature = within(Wide{a.low} + b.low, Wide{a.high} + b.high, node.type, overflow);
      break;
    case Op::sub:
      result.nature = within(Wide{a.low} - b.high, Wide{a.high} - b.low, node.type, overflow);
      break;
    case Op::mul:
      result.nature = corners(a, b, node.type, overflow, [](Wide x, Wide y) { return x * y; });
      break;
    case Op::neg:
      result.nature = within(-Wide{a.high}, -Wide{a.low}, node.type, overflow);
      break;
    case Op::abs:
      result.nature = within(0, std::max(Wide{a.high}, -Wide{a.low}), node.type, overflow);
      break;
    case Op::min:
      result.nature = integers(std::min(a.low, b.low), std::min(a.high, b.high));
      break;
    case Op::max:
      result.nature = integers(std::max(a.low, b.low), std::max(a.high, b.high));
      break;
    case Op::bit_and:
      result.nature = b.low >= 0   ? integers(0, b.high)
                      : a.low >= 0 ? integers(0, a.high)
                                   : anything(node.type);
      break;
    case Op::div:
    case Op::mod:
    case Op::floordiv:
    case Op::floormod:
    case Op::ceildiv:
      divide(node, a, b, result);
      break;
    default:
      result.nature = anything(node.type);
  }
  return result;
}

Nature of_cast(const ir::ExprNode& node, DType from, const Nature& a, bool* diverges) {
  const DType to = node.type;
  if (to.is_floating()) {
    if (from.is_floating()) {
      Nature result = stored(a, to);
      result.product &= from == to;
      if (from == f64 && to == f32 && a.error > 0) result.error += unit(f32);
      return result;
    }
    const double bound =
        std::max(std::fabs(static_cast<double>(a.low)), std::fabs(static_cast<double>(a.high)));
    return stored(held_dyadic(0, bound, false, node.held()).value_or(float_of_any(false)), to);
  }
  if (!from.is_floating()) return to.is_boolean() ? integers(0, 1) : stored(a, to);
  *diverges = !a.is_exact();
  if (to.is_boolean() || !a.dyadic || a.bound > 0x1p31) return anything(to);
  const ir::Interval all = ir::values_of(to);
  const auto bound = static_cast<std::int64_t>(a.bound);
  return integers(std::clamp(-bound, all.low, all.high), std::clamp(bound, all.low, all.high));
}

// Sums and products that are exact, and others that are rounded once.
Nature arithmetic(const ir::ExprNode& node, std::span<const Nature> args, bool* diverges) {
  const Nature &a = args[0], &b = args[1];
  const bool both = a.dyadic && b.dyadic, loose = a.loose_zero || b.loose_zero;
  const bool sum = node.op == Op::add || node.op == Op::sub;
  std::optional<Nature> exact;
  if (both && sum) exact = held_dyadic(std::min(a.step, b.step), a.bound + b.bound, loose, node.type);
  if (both && node.op == Op::mul) exact = held_dyadic(a.step + b.step, a.bound * b.bound, loose, node.type);
  if (both && node.op == Op::fma && args[2].dyadic) {
    exact = held_dyadic(std::min(a.step + b.step, args[2].step), a.bound * b.bound + args[2].bound,
                        loose || args[2].loose_zero, node.type);
  }
  if (exact) return *exact;
  // The sign of a zero decides the sign of an infinite quotient.
  *diverges |= (sum && (a.product || b.product)) || (node.op == Op::fma && args[2].product) ||
               (node.op == Op::div && b.loose_zero);
  Nature result = float_of_any(node.op == Op::mul);
  result.loose_zero = loose || (node.op == Op::fma && args[2].loose_zero);
  return result;
}

Nature lesser_or_greater(const Nature& a, const Nature& b, DType type) {
  Nature result = join(a, b, type);
  result.loose_zero = true;
  return result;
}

Result float_operation(const ir::ExprNode& node, std::span<const Nature> args) {
  Result result;
  const Nature& a = args[0];
  const bool exact = std::all_of(args.begin(), args.end(), [](const Nature& n) { return n.is_exact(); });
  switch (node.op) {
    case Op::neg:
    case Op::abs:
      result.nature = a;
      break;
    case Op::min:
    case Op::max:
      result.nature = lesser_or_greater(a, args[1], node.type);
      break;
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::div:
    case Op::fma:
      result.nature = arithmetic(node, args, &result.diverges);
      result.diverges |= !exact;
      break;
    case Op::round:
    case Op::floor:
    case Op::ceil:
      result.diverges = !exact;
      if (a.dyadic) result.nature = dyadic(std::max(a.step, 0), std::ceil(a.bound));
      result.nature.loose_zero = a.loose_zero;
      break;
    default:
      // Both sides of a pole or of an infinite result are one value only if its sign is.
      result.diverges = !exact || (a.loose_zero && (node.op == Op::rcp || node.op == Op::rsqrt));
      result.nature.error = 6 * unit(node.type);
      result.nature.loose_zero = true;
  }
  return result;
}

}  // namespace

Nature integers(std::int64_t low, std::int64_t high) {
  Nature result;
  result.low = low;
  result.high = high;
  return result;
}

Nature dyadic(int step, double bound) {
  Nature result;
  result.dyadic = true;
  result.step = step;
  result.bound = bound;
  return result;
}

Nature anything(DType type) {
  if (type.is_floating()) return {};
  const ir::Interval all = ir::values_of(type);
  return integers(all.low, all.high);
}

Nature inexact(DType type) {
  Nature result;
  result.product = result.loose_zero = true;
  result.error = 16 * unit(compute_type(type));
  if (type.bits() >= 32) return result;
  result.rounded = type.code;
  result.rounded_error = std::exchange(result.error, 0) + 2 * unit(type);
  return result;
}

bool contains_zero(const Nature& nature) { return nature.low <= 0 && nature.high >= 0; }

Nature of_constant(const ir::ExprNode& node) {
  if (!node.type.is_floating()) return integers(node.integer, node.integer);
  for (int step = 32; step >= -40; --step) {
    const double scaled = std::ldexp(node.real, -step);
    if (std::fabs(scaled) < 0x1p24 && scaled == std::floor(scaled)) return dyadic(step, std::fabs(node.real));
  }
  return {};
}

Result result_of(const ir::ExprNode& node, std::span<const Nature> args) {
  Result result;
  const DType from = node.args[0]->held();
  const bool exact = std::all_of(args.begin(), args.end(), [](const Nature& n) { return n.is_exact(); });
  if (node.op == Op::select) {
    result.nature = join(args[1], args[2], node.type);
  } else if (node.op == Op::cast) {
    result.nature = of_cast(node, from, args[0], &result.diverges);
  } else if (node.op == Op::bitcast) {
    // The sign and the payload of a NaN are nobody's promise.
    result.diverges =
        from.is_floating() && !node.type.is_floating() && (!args[0].dyadic || args[0].loose_zero);
    result.nature = anything(node.type);
  } else if (node.type.is_boolean()) {
    result.diverges = !exact;
    result.nature = integers(0, 1);
  } else {
    return node.type.is_floating() ? float_operation(node, args) : integer_operation(node, args);
  }
  return result;
}

Nature join(const Nature& a, const Nature& b, DType type) {
  if (!type.is_floating()) return integers(std::min(a.low, b.low), std::max(a.high, b.high));
  Nature result;
  if (a.dyadic && b.dyadic) {
    if (auto both =
            held_dyadic(std::min(a.step, b.step), std::max(a.bound, b.bound), false, compute_type(type)))
      result = *both;
  }
  result.product = a.product || b.product;
  result.loose_zero = a.loose_zero || b.loose_zero;
  const Nature &kept = a.rounded_error > 0 ? a : b, &other = a.rounded_error > 0 ? b : a;
  result.rounded = kept.rounded;
  result.rounded_error = kept.rounded_error;
  result.error = std::max(a.error, b.error);
  // There is room for the values of one small type.
  double& where = other.rounded == kept.rounded ? result.rounded_error : result.error;
  where = std::max(where, other.rounded_error);
  return result;
}

Nature stored(const Nature& nature, DType type) {
  if (!type.is_floating()) {
    const ir::Interval all = ir::values_of(type);
    return all.low <= nature.low && nature.high <= all.high ? nature : anything(type);
  }
  if (type.bits() >= 32 && (type == f64 || nature.dyadic)) return nature;
  Nature result = nature;
  result.product = nature.product && type.bits() >= 32;
  if (type.bits() < 32) {
    const bool is_rounded = nature.rounded == type.code;
    const double other = is_rounded ? nature.error : nature.worst_error();
    result.rounded = type.code;
    result.rounded_error =
        std::max(is_rounded ? nature.rounded_error : 0, other > 0 ? other + unit(type) : 0);
    result.error = 0;
  }
  if (!nature.dyadic) return result;
  const Format format = format_of(type);
  // Rounding keeps multiples of the step; it may go up to the next power of two.
  if (nature.bound > std::ldexp(1.0, nature.step + format.digits))
    result.bound = std::exp2(std::ceil(std::log2(nature.bound)));
  if (nature.step < format.smallest || result.bound > std::ldexp(1.0, format.end)) {
    result = float_of_any(false);
    result.loose_zero = nature.loose_zero;
  }
  return result;
}

bool fits(const Nature& nature, const Nature& contract, DType type) {
  const Nature n = stored(nature, type);
  if (!type.is_floating()) return contract.low <= n.low && n.high <= contract.high;
  if (n.worst_error() > contract.worst_error()) return false;
  if (!contract.is_exact()) return true;
  if ((n.product && !contract.product) || (n.loose_zero && !contract.loose_zero)) return false;
  return !contract.dyadic || (n.dyadic && n.step >= contract.step && n.bound <= contract.bound);
}

std::string describe(const Nature& nature, DType type) {
  if (!type.is_floating()) return fmt::format("{} to {}", nature.low, nature.high);
  if (!nature.is_exact()) return fmt::format("within {:.2g}", nature.worst_error());
  std::string text = "any";
  if (nature.dyadic) text = fmt::format("multiples of 2^{} up to {}", nature.step, nature.bound);
  return text + (nature.product ? ", products" : "") + (nature.loose_zero ? ", zeros of either sign" : "");
}

}  // namespace tegula::fuzz

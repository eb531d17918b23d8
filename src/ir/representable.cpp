#include "ir/representable.hpp"

#include <algorithm>
#include <cmath>

namespace tegula::ir {

namespace {

// Numbers of so many binary digits, the last of them at least 2^lowest, below 2^highest; not negative, or of
// both signs. Integers are numbers whose last digit is at least 1.
struct Numbers {
  int digits, lowest, highest;
  bool is_signed, has_infinity;
};

Numbers numbers_of(DType type) {
  switch (type.code) {
    case TypeCode::boolean:
      return {1, 0, 1, false, false};
    case TypeCode::i8:
    case TypeCode::i16:
    case TypeCode::i32:
    case TypeCode::i64:
      return {type.bits() - 1, 0, type.bits() - 1, true, false};
    case TypeCode::u8:
    case TypeCode::u32:
      return {type.bits(), 0, type.bits(), false, false};
    case TypeCode::e4m3:
      return {4, -9, 9, true, false};
    case TypeCode::e5m2:
      return {3, -16, 16, true, true};
    case TypeCode::f16:
      return {11, -24, 16, true, true};
    case TypeCode::bf16:
      return {8, -133, 128, true, true};
    case TypeCode::f32:
      return {24, -149, 128, true, true};
    case TypeCode::f64:
      return {53, -1074, 1024, true, true};
  }
  return {};
}

bool holds(const Expr& constant, DType type) {
  if (type == constant->held()) return true;
  if (!type.is_floating() || !constant->held().is_floating()) return false;
  const double value = constant->real;
  return std::isnan(value) || round_to(type, value) == value;
}

}  // namespace

bool contains(DType type, DType other) {
  if (type == e5m2 && numbers_of(other).has_infinity) return false;  // which rounding makes finite
  if (type == other) return true;
  if (!type.is_floating() && other.is_floating()) return false;
  const Numbers large = numbers_of(type), small = numbers_of(other);
  // The integer −2^n of n digits, which has one digit more, is a power of two: floats hold it if they go that
  // far.
  const int highest = small.highest + (type.is_floating() && other.is_integer() ? 1 : 0);
  return large.digits >= small.digits && large.lowest <= small.lowest && large.highest >= highest &&
         large.is_signed >= small.is_signed && large.has_infinity >= small.has_infinity;
}

bool is_representable(const Expr& e, DType type, const StoredType& stored_type) {
  const auto all = [&](std::size_t from) {
    return std::all_of(e->args.begin() + static_cast<std::ptrdiff_t>(from), e->args.end(),
                       [&](const Expr& arg) { return is_representable(arg, type, stored_type); });
  };
  switch (e->op) {
    case Op::constant:
      return holds(e, type);
    case Op::variable: {
      const auto stored = stored_type(e->variable);
      return stored && contains(type, *stored);
    }
    case Op::cast:  // of what the type it casts to holds as well, the value stays
      return contains(type, e->type) || (is_representable(e->args[0], e->type, stored_type) && all(0));
    case Op::neg:
    case Op::abs:
      return type.is_floating() && e->held().is_floating() && all(0);
    case Op::min:
    case Op::max:
      return all(0);
    case Op::select:
      return all(1);
    default:
      return false;
  }
}

}  // namespace tegula::ir

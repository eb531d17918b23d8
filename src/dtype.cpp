#include "tegula/dtype.hpp"

#include <bit>
#include <cmath>

#include "tegula/error.hpp"

namespace tegula {
namespace {

// A float narrower than f32: sign, exponent, `mantissa` bits. Codes without the sign grow with the value.
struct NarrowFormat {
  int bits;
  int mantissa;
  int bias;
  std::uint64_t largest;   // code of the largest finite value
  std::uint64_t overflow;  // code of what is beyond it
  std::uint64_t nan;
  bool has_infinity;
};

constexpr NarrowFormat narrow_format(TypeCode code) {
  switch (code) {
    case TypeCode::e4m3:
      return {8, 3, 7, 0x7e, 0x7e, 0x7f, false};
    case TypeCode::e5m2:
      return {8, 2, 15, 0x7b, 0x7b, 0x7e, true};
    case TypeCode::f16:
      return {16, 10, 15, 0x7bff, 0x7c00, 0x7e00, true};
    default:
      return {16, 7, 127, 0x7f7f, 0x7f80, 0x7fc0, true};
  }
}

constexpr int f64_mantissa = 52, f64_bias = 1023;

std::uint64_t round_magnitude(const NarrowFormat& format, double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int exponent = static_cast<int>(bits >> f64_mantissa & 0x7ff) - f64_bias;
  if (exponent == -f64_bias) return 0;  // subnormal doubles are below half of every smallest value
  const std::uint64_t significand = (bits & ((1ull << f64_mantissa) - 1)) | 1ull << f64_mantissa;
  const int smallest = 1 - format.bias;
  int shift = f64_mantissa - format.mantissa + (exponent < smallest ? smallest - exponent : 0);
  if (shift > f64_mantissa + 2) shift = f64_mantissa + 2;
  std::uint64_t quotient = significand >> shift;
  const std::uint64_t remainder = significand & ((1ull << shift) - 1), half = 1ull << (shift - 1);
  quotient += remainder > half || (remainder == half && (quotient & 1));
  // The implicit leading bit of a normal number adds one to the exponent field, and so does a carry.
  const std::uint64_t raised = exponent > smallest ? exponent - smallest : 0;
  return (raised << format.mantissa) + quotient;
}

std::uint64_t encode_narrow(const NarrowFormat& format, double value) {
  const std::uint64_t sign = static_cast<std::uint64_t>(std::signbit(value)) << (format.bits - 1);
  if (std::isnan(value)) return sign | format.nan;
  if (std::isinf(value)) return sign | format.overflow;
  const std::uint64_t magnitude = round_magnitude(format, value);
  return sign | (magnitude > format.largest ? format.overflow : magnitude);
}

double decode_narrow(const NarrowFormat& format, std::uint64_t bits) {
  const std::uint64_t magnitude = bits & ((1ull << (format.bits - 1)) - 1);
  const bool negative = bits >> (format.bits - 1) & 1;
  const double sign = negative ? -1.0 : 1.0;
  if (magnitude > format.largest) {
    const bool infinite = format.has_infinity && magnitude == format.largest + 1;
    return std::copysign(
        infinite ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN(), sign);
  }
  const int field = static_cast<int>(magnitude >> format.mantissa);
  const int exponent = (field == 0 ? 1 : field) - format.bias;
  std::uint64_t significand = magnitude & ((1ull << format.mantissa) - 1);
  if (field != 0) significand |= 1ull << format.mantissa;
  // 2^(exponent - mantissa), built from its bits: all of these are normal doubles.
  const auto scale = std::bit_cast<double>(static_cast<std::uint64_t>(exponent - format.mantissa + f64_bias)
                                           << f64_mantissa);
  return sign * static_cast<double>(significand) * scale;
}

template <class T>
std::uint64_t encode_integer(double value) {
  if (std::isnan(value)) return 0;
  // 2^digits is exact while the largest integer may not be.
  const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);
  T result = 0;
  if (value >= above) {
    result = std::numeric_limits<T>::max();
  } else if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
    result = std::numeric_limits<T>::min();
  } else {
    result = static_cast<T>(value);
  }
  return static_cast<std::make_unsigned_t<T>>(result);
}

}  // namespace

double decode(DType type, std::uint64_t bits) {
  switch (type.code) {
    case TypeCode::boolean:
      return (bits & 0xff) != 0;
    case TypeCode::i8:
      return static_cast<std::int8_t>(bits);
    case TypeCode::i16:
      return static_cast<std::int16_t>(bits);
    case TypeCode::i32:
      return static_cast<std::int32_t>(bits);
    case TypeCode::i64:
      return static_cast<double>(static_cast<std::int64_t>(bits));
    case TypeCode::u8:
      return static_cast<std::uint8_t>(bits);
    case TypeCode::u32:
      return static_cast<std::uint32_t>(bits);
    case TypeCode::f32:
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case TypeCode::f64:
      return std::bit_cast<double>(bits);
    default:
      return decode_narrow(narrow_format(type.code), bits);
  }
}

std::uint64_t encode(DType type, double value) {
  switch (type.code) {
    case TypeCode::boolean:
      return value != 0;
    case TypeCode::i8:
      return encode_integer<std::int8_t>(value);
    case TypeCode::i16:
      return encode_integer<std::int16_t>(value);
    case TypeCode::i32:
      return encode_integer<std::int32_t>(value);
    case TypeCode::i64:
      return encode_integer<std::int64_t>(value);
    case TypeCode::u8:
      return encode_integer<std::uint8_t>(value);
    case TypeCode::u32:
      return encode_integer<std::uint32_t>(value);
    case TypeCode::f32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case TypeCode::f64:
      return std::bit_cast<std::uint64_t>(value);
    default:
      return encode_narrow(narrow_format(type.code), value);
  }
}

double round_to(DType type, double value) {
  internal_assert(type.is_floating(), "round_to takes a floating type");
  return decode(type, encode(type, value));
}

}  // namespace tegula

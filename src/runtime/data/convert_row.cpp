#include "runtime/data/convert_row.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace tegula {
namespace {

// Elements pass through a buffer of one wide type, so that a pair of dtypes needs no loop of its own.
constexpr std::int64_t chunk = 256;
template <class T>
using Buffer = std::array<T, chunk>;

template <class T>
T load_bits(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// The loops over neighbours are written apart because only they can be vectorised.
template <class Stored, class Wide, class F>
void load_with(ConstRow row, std::int64_t count, Buffer<Wide>& buffer, F value_of) {
  if (row.step == sizeof(Stored)) {
    for (std::int64_t i = 0; i < count; ++i)
      buffer[i] = value_of(load_bits<Stored>(row.data + i * static_cast<std::int64_t>(sizeof(Stored))));
  } else {
    for (std::int64_t i = 0; i < count; ++i) buffer[i] = value_of(load_bits<Stored>(row.data + i * row.step));
  }
}

template <class Stored, class Wide, class F>
void store_with(Row row, std::int64_t count, const Buffer<Wide>& buffer, F element_of) {
  const auto store = [&](std::int64_t i, std::int64_t step) {
    const Stored element = element_of(buffer[i]);
    std::memcpy(row.data + i * step, &element, sizeof element);
  };
  if (row.step == sizeof(Stored)) {
    for (std::int64_t i = 0; i < count; ++i) store(i, sizeof(Stored));
  } else {
    for (std::int64_t i = 0; i < count; ++i) store(i, row.step);
  }
}

// A float narrower than f32. Codes without the sign grow with the value.
struct Format {
  int bits, mantissa, bias;
  std::uint32_t largest, overflow, nan;
  bool has_infinity;
};
constexpr Format e4m3_format{8, 3, 7, 0x7e, 0x7e, 0x7f, false}, e5m2_format{8, 2, 15, 0x7b, 0x7b, 0x7e, true},
    f16_format{16, 10, 15, 0x7bff, 0x7c00, 0x7e00, true},
    bf16_format{16, 7, 127, 0x7f7f, 0x7f80, 0x7fc0, true};

constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// In place, the mantissa and the exponent are those of f32 but for the bias, which a product corrects, for
// subnormal numbers too.
template <Format F>
float widened(std::uint32_t bits) {
  constexpr std::uint32_t magnitude_mask = (1u << (F.bits - 1)) - 1;
  const std::uint32_t magnitude = bits & magnitude_mask, sign = (bits >> (F.bits - 1)) << 31;
  const float value = std::bit_cast<float>(magnitude << (23 - F.mantissa)) * power_of_two(127 - F.bias);
  constexpr std::uint32_t infinity = 0x7f800000, quiet = 0x7fc00000;
  std::uint32_t result = std::bit_cast<std::uint32_t>(value);
  result = magnitude > F.largest ? quiet : result;
  if constexpr (F.has_infinity) result = magnitude == F.largest + 1 ? infinity : result;
  return std::bit_cast<float>(result | sign);
}

// Nearest, ties to even: by the carry into the last bit that stays, and for subnormal numbers by adding a
// power of two whose last bit is theirs.
template <Format F>
std::uint32_t narrowed(float value) {
  constexpr int dropped = 23 - F.mantissa;
  constexpr std::uint32_t smallest_normal = static_cast<std::uint32_t>(128 - F.bias) << 23;
  constexpr float unit = power_of_two(1 - F.bias - F.mantissa + 23);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffff;
  const std::uint32_t carry = (1u << (dropped - 1)) - 1 + (magnitude >> dropped & 1);
  const std::uint32_t normal =
      ((magnitude + carry) >> dropped) - (static_cast<std::uint32_t>(127 - F.bias) << F.mantissa);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + unit) -
                                  std::bit_cast<std::uint32_t>(unit);
  std::uint32_t result = magnitude < smallest_normal ? subnormal : normal;
  result = result > F.largest ? F.overflow : result;
  result = magnitude > 0x7f800000 ? F.nan : result;
  return result | bits >> 31 << (F.bits - 1);
}

template <class Stored, class Wide>
void load_number(ConstRow row, std::int64_t count, Buffer<Wide>& buffer) {
  load_with<Stored>(row, count, buffer, [](Stored x) { return static_cast<Wide>(x); });
}

template <Format F, class Stored, class Wide>
void load_narrow(ConstRow row, std::int64_t count, Buffer<Wide>& buffer) {
  load_with<Stored>(row, count, buffer, [](Stored x) { return static_cast<Wide>(widened<F>(x)); });
}

template <class Wide>
void load_row(DType type, ConstRow row, std::int64_t count, Buffer<Wide>& buffer) {
  switch (type.code) {
    case TypeCode::boolean:
      return load_with<std::uint8_t>(row, count, buffer,
                                     [](std::uint8_t x) { return static_cast<Wide>(x != 0); });
    case TypeCode::i8:
      return load_number<std::int8_t>(row, count, buffer);
    case TypeCode::i16:
      return load_number<std::int16_t>(row, count, buffer);
    case TypeCode::i32:
      return load_number<std::int32_t>(row, count, buffer);
    case TypeCode::i64:
      return load_number<std::int64_t>(row, count, buffer);
    case TypeCode::u8:
      return load_number<std::uint8_t>(row, count, buffer);
    case TypeCode::u32:
      return load_number<std::uint32_t>(row, count, buffer);
    case TypeCode::e4m3:
      return load_narrow<e4m3_format, std::uint8_t>(row, count, buffer);
    case TypeCode::e5m2:
      return load_narrow<e5m2_format, std::uint8_t>(row, count, buffer);
    case TypeCode::f16:
      return load_narrow<f16_format, std::uint16_t>(row, count, buffer);
    case TypeCode::bf16:
      return load_narrow<bf16_format, std::uint16_t>(row, count, buffer);
    case TypeCode::f32:
      return load_number<float>(row, count, buffer);
    case TypeCode::f64:
      return load_number<double>(row, count, buffer);
  }
}

template <Format F, class Stored, class Wide>
void store_narrow(Row row, std::int64_t count, const Buffer<Wide>& buffer) {
  store_with<Stored>(row, count, buffer,
                     [](Wide x) { return static_cast<Stored>(narrowed<F>(static_cast<float>(x))); });
}

// From floats truncated and saturated, from integers the low bits.
template <class Stored, class Wide>
void store_integer(DType type, Row row, std::int64_t count, const Buffer<Wide>& buffer) {
  store_with<Stored>(row, count, buffer, [type](Wide x) {
    if constexpr (std::is_integral_v<Wide>)
      return static_cast<Stored>(x);
    else
      return static_cast<Stored>(encode(type, x));
  });
}

template <class Wide>
void store_row(DType type, Row row, std::int64_t count, const Buffer<Wide>& buffer) {
  switch (type.code) {
    case TypeCode::boolean:
      return store_with<std::uint8_t>(row, count, buffer,
                                      [](Wide x) { return static_cast<std::uint8_t>(x != 0); });
    case TypeCode::i8:
    case TypeCode::u8:
      return store_integer<std::uint8_t>(type, row, count, buffer);
    case TypeCode::i16:
      return store_integer<std::uint16_t>(type, row, count, buffer);
    case TypeCode::i32:
    case TypeCode::u32:
      return store_integer<std::uint32_t>(type, row, count, buffer);
    case TypeCode::i64:
      return store_integer<std::uint64_t>(type, row, count, buffer);
    case TypeCode::e4m3:
      return store_narrow<e4m3_format, std::uint8_t>(row, count, buffer);
    case TypeCode::e5m2:
      return store_narrow<e5m2_format, std::uint8_t>(row, count, buffer);
    case TypeCode::f16:
      return store_narrow<f16_format, std::uint16_t>(row, count, buffer);
    case TypeCode::bf16:
      return store_narrow<bf16_format, std::uint16_t>(row, count, buffer);
    case TypeCode::f32:
      return store_with<float>(row, count, buffer, [](Wide x) { return static_cast<float>(x); });
    case TypeCode::f64:
      return store_with<double>(row, count, buffer, [](Wide x) { return static_cast<double>(x); });
  }
}

template <class Wide>
void convert_through(DType from_type, ConstRow from, DType to_type, Row to, std::int64_t count) {
  Buffer<Wide> buffer;
  for (std::int64_t begin = 0; begin < count; begin += chunk) {
    const std::int64_t n = std::min(chunk, count - begin);
    load_row(from_type, {from.data + begin * from.step, from.step}, n, buffer);
    store_row(to_type, {to.data + begin * to.step, to.step}, n, buffer);
  }
}

}  // namespace

void convert_row(DType from_type, ConstRow from, DType to_type, Row to, std::int64_t count) {
  if (!from_type.is_floating() && !to_type.is_floating())
    return convert_through<std::int64_t>(from_type, from, to_type, to, count);
  // Into f64 from anything, and from f64 where f32 would lose what the integer keeps.
  if (to_type == f64 || (from_type == f64 && !to_type.is_floating()))
    return convert_through<double>(from_type, from, to_type, to, count);
  convert_through<float>(from_type, from, to_type, to, count);
}

}  // namespace tegula

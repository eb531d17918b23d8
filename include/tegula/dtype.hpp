// Element types of tensors, tiles and scalars, and the rules of conversion between them.
#pragma once
#include <cstdint>
#include <limits>
#include <string_view>

#include "tegula/compiler.hpp"

TEGULA_API_BEGIN
namespace tegula {

// Types of the same kind convert implicitly. u8 is an `integer`, because i32 represents all its values and
// their differences; the only `natural` is u32, whose arithmetic is modulo 2^32.
enum class Kind : std::uint8_t { boolean, integer, natural, floating };

enum class TypeCode : std::uint8_t { boolean, i8, i16, i32, i64, u8, u32, e4m3, e5m2, f16, bf16, f32, f64 };

namespace lang {
class Expr;
struct Operand;
}  // namespace lang

// An element type. Called as a function, it casts to that type inside a tile program: `f32(i)`.
struct DType {
  TypeCode code;

  constexpr std::string_view name() const {
    constexpr std::string_view names[] = {"bool", "i8",   "i16", "i32",  "i64", "u8", "u32",
                                          "e4m3", "e5m2", "f16", "bf16", "f32", "f64"};
    return names[static_cast<int>(code)];
  }
  constexpr int bits() const {
    constexpr int table[] = {8, 8, 16, 32, 64, 8, 32, 8, 8, 16, 16, 32, 64};
    return table[static_cast<int>(code)];
  }
  constexpr int bytes() const { return bits() / 8; }
  constexpr Kind kind() const {
    if (code == TypeCode::boolean) return Kind::boolean;
    if (code >= TypeCode::e4m3) return Kind::floating;
    return code == TypeCode::u32 ? Kind::natural : Kind::integer;
  }
  constexpr bool is_floating() const { return kind() == Kind::floating; }
  constexpr bool is_integer() const { return kind() == Kind::integer || kind() == Kind::natural; }
  constexpr bool is_boolean() const { return kind() == Kind::boolean; }
  // An integer type without negative values.
  constexpr bool is_unsigned() const { return code == TypeCode::u8 || code == TypeCode::u32; }

  friend constexpr bool operator==(DType a, DType b) { return a.code == b.code; }

  lang::Expr operator()(const lang::Operand& value) const;
};

inline constexpr DType boolean{TypeCode::boolean};
inline constexpr DType i8{TypeCode::i8}, i16{TypeCode::i16}, i32{TypeCode::i32}, i64{TypeCode::i64};
inline constexpr DType u8{TypeCode::u8}, u32{TypeCode::u32};
inline constexpr DType e4m3{TypeCode::e4m3}, e5m2{TypeCode::e5m2};
inline constexpr DType f16{TypeCode::f16}, bf16{TypeCode::bf16}, f32{TypeCode::f32}, f64{TypeCode::f64};

inline constexpr DType all_dtypes[] = {boolean, i8, i16, i32, i64, u8, u32, e4m3, e5m2, f16, bf16, f32, f64};

// The type in which values of `type` are computed: types narrower than 32 bits are for storage only.
constexpr DType compute_type(DType type) {
  if (type.bits() >= 32) return type;
  switch (type.kind()) {
    case Kind::floating:
      return f32;
    case Kind::integer:
      return i32;
    case Kind::natural:
      return u32;
    case Kind::boolean:
      break;
  }
  return type;
}

// The float nearest to `value` (ties to even) that `type` can hold. fp8 saturates to the largest finite
// value and keeps NaN; e4m3 has no infinity, e5m2 saturates infinities too. `type` is floating.
double round_to(DType type, double value);

// The float that `type` stores as `bits`, and the bits that store the float nearest to `value`.
double decode(DType type, std::uint64_t bits);
std::uint64_t encode(DType type, double value);

}  // namespace tegula
TEGULA_API_END

// Numbers as unsigned integers in the same order.
#pragma once
#include <cstdint>

#include "tegula/lang.hpp"

namespace tegula::ops {

// Larger numbers have larger keys; both zeros have one. Those of NaN are anything.
inline lang::Expr ordered_key(const lang::Expr& number) {
  using namespace lang;
  Expr bits = bitcast(number + 0.f, u32);
  return bits ^ (bitcast(bitcast(bits, i32) >> 31, u32) | 0x80000000u);
}

// The same of scores; 0: not to be chosen, −∞ and NaN.
inline lang::Expr sort_key(const lang::Expr& score) {
  using namespace lang;
  return select(score > -inf, ordered_key(score), 0u);
}

// The same where all numbers may be chosen and NaN is the largest; no key is 0.
inline lang::Expr key_of_any(const lang::Expr& number) {
  using namespace lang;
  return select(isnan(number), 0xffffffffu, ordered_key(number));
}

// The number with the key, or the least of those with it and larger ones; at least that of `least`.
inline lang::Expr number_of_key(const lang::Expr& key, std::uint32_t least) {
  using namespace lang;
  Expr own = max(key, least);
  return bitcast(select(own >> 31 == 1u, own ^ 0x80000000u, ~own), f32);
}

// The least score with such a key or a larger one, or the least of all that are to be chosen.
inline lang::Expr score_of(const lang::Expr& key) {
  constexpr std::uint32_t of_least = 0x00800000u;
  return number_of_key(key, of_least);
}

// The same where all numbers may be chosen.
inline lang::Expr any_score_of(const lang::Expr& key) {
  constexpr std::uint32_t of_infinity = 0x007fffffu;
  return number_of_key(key, of_infinity);
}

}  // namespace tegula::ops

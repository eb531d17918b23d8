// Numbers as unsigned integers in the same order.
#pragma once
#include <cstdint>

#include "tegula/lang.hpp"

namespace tegula::ops {

// Larger scores have larger keys. 0: not to be chosen, −∞ and NaN; both zeros have one key.
inline lang::Expr sort_key(const lang::Expr& score) {
  using namespace lang;
  Expr bits = bitcast(select(score == 0, 0, score), u32);
  Expr ordered = select(bits >> 31 == 1u, ~bits, bits | 0x80000000u);
  return select(score > -inf, ordered, 0u);
}

// The least score with such a key or a larger one, or the least of all that are to be chosen.
inline lang::Expr score_of(const lang::Expr& key) {
  using namespace lang;
  constexpr std::uint32_t of_least = 0x00800000u;
  Expr own = max(key, of_least);
  return bitcast(select(own >> 31 == 1u, own ^ 0x80000000u, ~own), f32);
}

}  // namespace tegula::ops

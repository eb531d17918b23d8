// Numbers as unsigned integers in the same order.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::ops {

// Larger scores have larger keys. 0: not to be chosen, −∞ and NaN; both zeros have one key.
inline lang::Expr sort_key(const lang::Expr& score) {
  using namespace lang;
  Expr bits = bitcast(select(score == 0, 0, score), u32);
  Expr ordered = select(bits >> 31 == 1u, ~bits, bits | 0x80000000u);
  return select(score > -inf, ordered, 0u);
}

}  // namespace tegula::ops

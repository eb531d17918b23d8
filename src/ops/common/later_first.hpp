// The order of blocks under a causal mask.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::ops {

// Blocks of high first indices first: later queries see more keys. Of the other indices, whose first is that
// of heads, those begin together whose keys and values fit the L2 cache of a GPU; a head of keys has so many
// keys of so many bytes, with their values, and so many indices follow each other for it.
lang::Order later_first(const lang::Expr& keys, int bytes, const lang::Expr& sharing);

}  // namespace tegula::ops

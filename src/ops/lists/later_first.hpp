// The order of blocks under a causal mask.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::ops {

// Blocks of high first indices first: later queries see more keys. The second index is that of heads, and as
// many begin together as have keys and values that fit the L2 cache of a GPU. `keys` of a head, `bytes` of a
// key and its value, `sharing` neighbouring indices that read one head of keys.
lang::Order later_first(const lang::Expr& keys, int bytes, const lang::Expr& sharing);

}  // namespace tegula::ops

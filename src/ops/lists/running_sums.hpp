// Where lists begin that stand one after the other, from their lengths.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::ops {

// begins(i) = next + the lengths before i, and next after the last. `begins` may be `lengths`. The lengths,
// a multiple of `runs`, are added up in so many runs at the same time.
void add_up(const lang::Shared& lengths, lang::Shared& begins, lang::Var& next, int runs);

}  // namespace tegula::ops

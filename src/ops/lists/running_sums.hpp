// Where lists begin that stand one after the other, from their lengths.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::ops {

// begins(i) = next + the lengths before i, and next after the last.
void add_up(const lang::Fragment& lengths, lang::Shared& begins, lang::Var& next);

}  // namespace tegula::ops

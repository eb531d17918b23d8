// Words of 32 bits that stand for sets.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::ops {

lang::Expr number_of_bits(const lang::Expr& word);

}  // namespace tegula::ops

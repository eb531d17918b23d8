// Sums of 256 rows that scaled products are added to, as two halves with one set of registers for what tensor
// cores add: two warp groups have room for these and not for products of all rows beside the sums.
//
// A step  s = a b, work { sum(i, j) += s(i, j) … }  becomes
//   s = upper half of a · b, work on the upper sum, s = lower half of a · b, work on the lower sum
// and what is stored of the sums leaves from the registers of s, from which the copy engine can store.
#pragma once
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

// Grids whose sums are accessed otherwise than element by element, or as a whole, stay as they are.
ir::Kernel halve_sums(const ir::Kernel& kernel, const CudaTarget& target);

}  // namespace tegula::passes

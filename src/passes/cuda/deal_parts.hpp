// Deals the parts of the steps of a sum to warp groups.
//
// Of a product of 64 rows one warp group has all. Where a step makes its left operand in registers, it does
// one after the other: operand, product, operand, and loads wait for both. If a step is an unrolled loop over
// two or four parts that does nothing but add to sums, and the block has a processor to itself, it gets as
// many warp groups. Each takes one part of every step and has sums of its own, which are added in the order
// of the groups behind the loop. So
//   sum = 0;  loop { tiles; for part in 2 { work, sum += … } };  store sum
// becomes, for each warp group,
//   sum = 0;  loop { tiles; work of the group's part, sum += … };  leave sum; sum = those of all groups;
//   the first group: store sum
#pragma once
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// The roles with such a program of the consumers; the reason is empty where nothing could be expected.
Planned<Roles> deal_parts(const Roles& roles);

}  // namespace tegula::passes

// Deals the steps of loops to two warp groups in turn.
//
// Where the groups divide the columns of what a step's last product adds to, and the block has no memory for
// a third tile, tensor cores would wait while all threads form maxima and exponentials. Instead one group
// forms the scores and weights of every other step alone, and leaves them in shared memory with what rows are
// scaled by. The other one, at its own turn, multiplies them by its columns of that step's tile, and then
// begins with the products of its own step, so that both are in flight:
//   loop { receive; scale, last product of the step before; own step: first products, work; send; scale, last
//   product }
#pragma once
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// The roles with such a program of the consumers; the reason is empty where nothing could be expected.
Planned<Roles> deal_steps(const Roles& roles, const CudaTarget& target);

}  // namespace tegula::passes

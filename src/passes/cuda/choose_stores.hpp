// How a block with roles stores its sums: by the copy engine, through buffers in shared memory, or, if these
// would cost slots, by the threads that hold the sums.
#pragma once
#include "passes/cuda/cuda_plan.hpp"

namespace tegula::passes {

// The roles with each way to store: with depths of rings, of those ways that fit shared memory. The first is
// by the copy engine, where that can do any of the stores. None: no roles.
std::vector<Roles> ways_to_store(const Roles& roles, const ir::GridHints& hints, const StoreForms& forms,
                                 const CudaTarget& target);

// The one that is better, of those that there are, once their steps are dealt to warp groups.
const Roles& best_way_to_store(const std::vector<Roles>& ways, const CudaTarget& target);

}  // namespace tegula::passes

// Fragments that a step of a pipelined loop loads from tensors, by way of shared tiles, which come steps
// ahead.
//
// A thread that loads registers waits for them before it computes, and what it computes keeps it from loading
// more: a step's loads are on their way only while nothing is computed. A tile of the same elements becomes a
// slot of a ring (copy_rings.hpp), which asynchronous copies fill while earlier steps are computed.
#pragma once
#include "ir/kernel.hpp"
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

// Handles grid `number`, which has no roles: fragments in loops whose tiles all become slots.
void bring_fragments_ahead(ir::Kernel& kernel, std::size_t number, const CudaTarget& target);

}  // namespace tegula::passes

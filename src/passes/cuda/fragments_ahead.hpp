// Fragments that a step of a pipelined loop loads from tensors: they are loaded through shared tiles, which
// are filled some steps ahead.
//
// A thread that loads registers waits for them before it computes, and while it computes it issues no loads:
// the loads of a step are in flight only while nothing is computed. A tile of the same elements becomes a
// slot of a ring (copy_rings.hpp), which asynchronous copies fill while earlier steps are computed. The tiles
// that the program has itself come first: where they would lose their slots, fragments stay as they are.
#pragma once
#include "ir/kernel.hpp"
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

// Handles grid `number`, which has no roles: fragments in loops whose tiles all become slots.
void bring_fragments_ahead(ir::Kernel& kernel, std::size_t number, const CudaTarget& target);

}  // namespace tegula::passes

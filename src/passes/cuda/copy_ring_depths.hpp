// Chooses the number of slots of a ring without roles. Part of copy_rings.
#pragma once
#include "ir/kernel.hpp"
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

// Bytes of shared memory beside the slots of a loop: those of loops around it, and an estimate of the other
// tiles that live with them, for which GridHints::other_shared_bytes stands where it is known.
struct BesideSlots {
  std::int64_t slots = 0, tiles = 0;
};

// As many slots as the loop requests; otherwise, as many as keep the memory of a processor busy when its
// blocks share its shared memory, and none if blocks that hide each other's latency would no longer fit. At
// most as many as fit a block, or as there are steps; 0 or 1 if no copy can be issued ahead. `step_bytes`:
// bytes of one slot of all tiles.
int copy_ring_depth(const ir::For& loop, std::int64_t step_bytes, const BesideSlots& beside,
                    const ir::Grid& grid, const CudaTarget& target);

// The most that fit.
int copy_ring_room(std::int64_t step_bytes, const BesideSlots& beside, const ir::Grid& grid,
                   const CudaTarget& target);

// Slots that the loop asks for, or the fewest that let copies come ahead.
inline int wanted_slots(const ir::For& loop) { return loop.stages > 0 ? loop.stages : 2; }

}  // namespace tegula::passes

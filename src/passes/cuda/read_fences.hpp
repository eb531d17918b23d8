// Only a fence orders loads from shared memory before writes of the copy engine. While products keep shared
// memory busy, an arrival may overtake loads of its warp that are still in flight, and the slot may be
// refilled before they complete (observed on an H200 in about one step in ten thousand).
#pragma once
#include <functional>

#include "schedule/schedule.hpp"

namespace tegula::passes {

// Puts a fence in front of every release of a slot that ordinary instructions have read, unless the values
// are known to have arrived: a product has taken registers, or a store to shared memory values, that were
// made of them. Loads of a warp from shared memory arrive in order. `is_filled_by_engine`: of a ring.
void fence_reads(schedule::Events& events, const schedule::Schedule& schedule,
                 const std::function<bool(int)>& is_filled_by_engine);

}  // namespace tegula::passes

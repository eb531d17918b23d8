// Loads from shared memory are ordered before the writes of the copy engine by a fence alone: an arrival may
// overtake loads of its warp whose values are still on their way while products keep shared memory busy, and
// the slot be filled under them (seen on an H200: about one step in ten thousand).
#pragma once
#include <functional>

#include "schedule/schedule.hpp"

namespace tegula::passes {

// Puts a fence in front of every release of a slot that ordinary instructions have read, unless the values
// are known to have arrived: a product has taken registers, or a store to shared memory values, that were made
// of them. Loads of a warp from shared memory arrive in order. `is_filled_by_engine`: of a ring.
void fence_reads(schedule::Events& events, const schedule::Schedule& schedule,
                 const std::function<bool(int)>& is_filled_by_engine);

}  // namespace tegula::passes

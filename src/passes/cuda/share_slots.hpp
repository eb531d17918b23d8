// Loops after one another that load tiles into the same slots.
#pragma once
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// Puts tiles of loops that never run at the same time into one ring, where the copy engine brings all of them: with
// its barriers, the producer waits for every slot until the loop before has released it. False: there are none.
bool share_slots(Roles& roles);

}  // namespace tegula::passes

// What the producer's threads only begin comes before what they wait for.
//
// Threads that convert a tile wait for what they load. A box of the copy engine, or rows that threads copy
// asynchronously, behind them in the program would begin when they are done, and the consumers would wait for
// their way from memory. They begin first, if they need nothing of what stands between.
#pragma once
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// The producer's program in that order.
ir::Body loads_first(const Roles& roles);

}  // namespace tegula::passes

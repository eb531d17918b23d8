// Brings tiles in the order in which they are used.
//
// Where the last product of a step is delayed (see delay_products.hpp), its tile is used behind the first
// ones of the next step, and its slot becomes free behind theirs. A producer that brought it before them
// would wait with loads that could begin. That counts where a tile takes several transfers.
#pragma once
#include "passes/cuda/delay_products.hpp"

namespace tegula::passes {

Roles order_loads(const Roles& roles, const ConsumerProgram& program);

}  // namespace tegula::passes

// Loads tiles in the order in which they are used.
//
// If the last product of a step is delayed (see delay_products.hpp), its tile is used after the first ones of
// the next step, and its slot is released after theirs. A producer that loaded it before them would delay
// loads that could start. This matters if a tile takes several transfers.
#pragma once
#include "passes/cuda/delay_products.hpp"

namespace tegula::passes {

Roles order_loads(const Roles& roles, const ConsumerProgram& program);

}  // namespace tegula::passes

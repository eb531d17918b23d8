// Lets neighbouring blocks share loads: both need the same tile, and each loads one half of it for both.
#pragma once
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// Decides along which index of the grid, and marks the copies. Blocks of a pair must load in step, so nothing
// may depend on that index but where a tile comes from; the copy engine must bring everything.
void pair_blocks(const ir::Grid& grid, Roles& roles);

}  // namespace tegula::passes

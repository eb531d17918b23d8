// Tiles by which the consumers pass what one step makes to products of the next one.
//
// Where each step multiplies a tile before it writes it again, with what the next step multiplies, all warps
// would meet twice: what the others wrote is there, and nobody reads it any more. With two slots one meeting
// is enough, and it need not be one: a ring whose slots the consumers fill for themselves. Products read the
// slot of the step before while threads write the other one; a warp says once a step that both are done, and
// awaits that all said so where the next step reads. Until then it may run ahead.
#pragma once
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// Tiles that only products of warp groups read, that loops over elements write whole, and that some pipelined
// loop reads in front of its one write, become rings where shared memory has room for a second slot. In the
// consumers' program each write has the tile's declaration in front, and products read a tile of the step
// before, which is in `before`.
void relay_tiles(Roles& roles, const CudaTarget& target);

}  // namespace tegula::passes

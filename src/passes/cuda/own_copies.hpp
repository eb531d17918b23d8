// Rings of tiles that each warp reads only where it has copied itself.
//
// A warp awaits its own copies without the others. Where a block has a processor for itself, no other block
// computes while its warps wait for each other, so its steps do without the barrier of all threads.
#pragma once
#include "passes/cuda/copy_rings.hpp"
#include "passes/cuda/infer_layouts.hpp"

namespace tegula::passes {

// Gives the steps of such rings a barrier of each warp instead; true if there are any.
bool let_warps_go_alone(CopyRings& rings, const ir::Grid& grid, const Layouts& layouts);

}  // namespace tegula::passes

// Tensors of which every block reads places of its own once, beside others that all blocks read: weights of a
// matrix whose rows are multiplied by one vector. Pieces of them need not stay in the first-level cache,
// where what the blocks share is kept instead.
#pragma once
#include "passes/cuda/infer_layouts.hpp"

namespace tegula::passes {

// Of a grid without roles: read in the steps of one loop, by each statement at places of its own that the
// step and an index of the block decide, where the steps read something else for all values of that index.
Buffers passing_tensors(const ir::Grid& grid);

}  // namespace tegula::passes

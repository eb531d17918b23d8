// Copies between tensors and tiles that loops over elements take the place of.
#pragma once
#include "ir/kernel.hpp"

namespace tegula::passes {

// Of grids without products, on a CPU. A tile that is copied from a tensor, and that loops and reductions
// along its rows read, is not filled: they read the tensor, a few times at most. A tile whose elements a loop
// computes and a copy stores is stored by a loop over the same elements, which can be one with the first.
ir::Kernel copies_in_loops(const ir::Kernel& kernel);

}  // namespace tegula::passes

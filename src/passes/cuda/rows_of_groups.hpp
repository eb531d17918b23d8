// Whether the warp groups of a block may each decide for themselves about a branch that concerns some rows
// only: when_rows().
#pragma once
#include "passes/cuda/infer_layouts.hpp"

namespace tegula::passes {

// True if there is a warp group for each run of rows, all that the body does to a row is done by warps of its
// group, and none waits there for others. Else all must do the same.
bool warp_groups_decide(const ir::If& branch, int threads, const Layouts& layouts, const CudaTarget& target);

}  // namespace tegula::passes

// Whether each warp group may decide a branch that affects only some rows: when_rows().
#pragma once
#include "passes/cuda/infer_layouts.hpp"

namespace tegula::passes {

enum class Deciders : std::uint8_t { block, warp_groups, warps };

// Warp groups, or warps, if there is one for each run of rows, all that the body does to a row is done by
// warps of that unit, and none waits there for others. Else all must do the same.
Deciders deciders(const ir::If& branch, int threads, const Layouts& layouts, const CudaTarget& target);

}  // namespace tegula::passes

// A warp group multiplies 64 rows at a time, whoever needs them. Where a step concerns the rows of few of its
// warps, those are faster alone: each by mma.sync, on its own rows, while the others go on to another step.
//
//   when_rows(conditions of runs of 16 rows, body)
// becomes
//   when_rows(enough warps of the group have such rows) body
//   otherwise when_rows(the warp has) body with products by warps
#pragma once
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

// Rewrites the consumers' program; it is unchanged unless warps can decide every such branch on their own.
ir::Body rows_of_warps(const ir::Body& consumer, int threads, const CudaTarget& target);

}  // namespace tegula::passes

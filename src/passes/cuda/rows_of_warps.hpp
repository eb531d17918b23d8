// A warp group always multiplies 64 rows. If a step affects the rows of only a few of its warps, these are
// faster alone: each uses mma.sync on its own rows while the others continue with another step.
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

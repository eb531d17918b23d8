// Products of warp groups: m64nNk16, k32 for 8 bits, or k8 for tf32.
#pragma once
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

// Each warp group multiplies rows of its own; where there are fewer rows, columns of its own too. The reason
// if no instruction does it.
Planned<GemmPlan> plan_wgmma(const ir::Gemm& gemm, int threads);

// Why tensor cores do not multiply what the product multiplies.
Reason reason_of_types(const ir::Gemm& gemm);

}  // namespace tegula::passes

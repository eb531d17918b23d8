// Chooses the number of threads per block of each grid.
#pragma once
#include "ir/kernel.hpp"
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

// What the program asks for, or a choice: by the size of the fragments, and where these do not fit the
// registers or tensor cores do less than they could, among one to four warp groups. Throws ProgramError at a
// product that ptxas would refuse, or whose sums cannot stay in registers.
ir::Kernel choose_threads(const ir::Kernel& kernel, const CudaTarget& target);

}  // namespace tegula::passes

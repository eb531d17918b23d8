// The kernels that the library's own build compiles for the CPU, so that common calls need no compiler.
#pragma once
#include <vector>

#include "tegula/lang.hpp"

namespace tegula::ops {

// Without repetition, and for processors with tile registers and without. Other configurations are compiled
// on first use.
std::vector<lang::Kernel> pregenerated();

}  // namespace tegula::ops

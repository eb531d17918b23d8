// The kernels that the library's own build compiles for the CPU, so that common calls need no compiler.
#pragma once
#include <vector>

#include "runtime/machine/cpu_features.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// Of processors that have this set at best, without repetition. Some of those with AVX-512 have tile
// registers, and some have none: there are kernels for both. Other configurations are compiled on first use.
std::vector<lang::Kernel> pregenerated(Isa isa);

}  // namespace tegula::ops

// What the compiler makes of a kernel for NVIDIA GPUs, as text to read. No GPU is needed.
#pragma once
#include <string>

#include "passes/cuda/plan_gemms.hpp"
#include "tegula/lang.hpp"

namespace tegula::tool {

// The CUDA C++ that is compiled.
std::string cuda_text(const lang::Kernel& kernel, const passes::CudaTarget& target);
// The instruction of each product, and the registers that hold each fragment, as digits of the thread and
// register numbers (see src/layout/layout.hpp).
std::string layout_text(const lang::Kernel& kernel, const passes::CudaTarget& target);
// What the producer and the consumers of each grid's blocks do, with all synchronisation; how many counters,
// rings and slots they have.
std::string schedule_text(const lang::Kernel& kernel, const passes::CudaTarget& target);
// Threads, shared memory and registers of a block of each grid, and what fell back to a slower way.
std::string resources_text(const lang::Kernel& kernel, const passes::CudaTarget& target);

}  // namespace tegula::tool

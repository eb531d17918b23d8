// Runs the printed CUDA text on the CPU, thread by thread: it is slow, and serves to test printed code
// without a GPU.
#pragma once
#include <span>
#include <vector>

#include "passes/cuda/plan_gemms.hpp"
#include "runtime/execution/executable.hpp"

namespace tegula::emulation {

std::unique_ptr<const Executable> make_emulated_executor(const std::shared_ptr<const Signature>& signature,
                                                         const passes::CudaTarget& target);
// Kernels of different names, by one run of the compiler. None of them runs beside another.
std::vector<std::unique_ptr<const Executable>> make_emulated_executors(
    std::span<const std::shared_ptr<const Signature>> signatures, const passes::CudaTarget& target);

}  // namespace tegula::emulation

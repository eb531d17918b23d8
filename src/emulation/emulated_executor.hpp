// Runs the printed CUDA text on the CPU, thread by thread: it is slow, and serves to test printed code
// without a GPU.
#pragma once
#include "passes/cuda/plan_gemms.hpp"
#include "runtime/execution/executable.hpp"

namespace tegula::emulation {

std::unique_ptr<const Executable> make_emulated_executor(const std::shared_ptr<const Signature>& signature,
                                                         const passes::CudaTarget& target);

}  // namespace tegula::emulation

// Runs a kernel on CUDA devices: printed as CUDA C++, compiled by NVRTC, launched in the order of a stream.
#pragma once
#include "runtime/execution/executable.hpp"

namespace tegula::cuda {

// With the instructions of an architecture (90: Hopper's, 80: those of compute capability 8.0, which the
// first device gets if it is no Hopper), in machine code for the device of each call. A DeviceError if there
// is no driver, device or compiler, or it fails.
std::unique_ptr<const Executable> make_executor(const std::shared_ptr<const Signature>& signature,
                                                int instructions);

}  // namespace tegula::cuda

// Results of ptxas for the kernels of a call, if NVRTC is found; no GPU is needed.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cuda/compile.hpp"
#include "passes/cuda/plan_gemms.hpp"
#include "tegula/lang.hpp"

namespace tegula::shown {

struct Assembled {
  std::vector<cuda::Resources> resources;  // of each function
  std::vector<std::string> notes;          // remarks in words, each with the line of the grid
};
// Nothing where there is no NVRTC.
std::optional<Assembled> assembled(const lang::Kernel& kernel, const passes::CudaTarget& target);

// A line for each function: registers and bytes that are spilled; then remarks in words, each with the line
// of the grid. Where there is no NVRTC, a line that says so.
std::string assembler_text(const lang::Kernel& kernel, const passes::CudaTarget& target);

}  // namespace tegula::shown

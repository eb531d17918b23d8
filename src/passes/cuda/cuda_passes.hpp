// The compiler for GPUs is a list of passes that run before a kernel is printed. Each takes the plan that the
// earlier passes left, and adds its own decisions.
#pragma once
#include <functional>
#include <span>

#include "passes/cuda/cuda_plan.hpp"
#include "passes/passes.hpp"

namespace tegula::passes {

struct CudaPass {
  std::string_view name;
  std::string_view reason;
  std::function<void(CudaPlan&)> run;
};

std::span<const CudaPass> cuda_passes();

// Runs all passes; the contract of the IR is checked before the first and after each.
CudaPlan plan_for_cuda(const ir::Kernel& kernel, const CudaTarget& target, const ShownOfGrids& shown,
                       const Observer& observer);
// The same; TEGULA_DUMP writes down what every pass changed.
CudaPlan plan_for_cuda(const ir::Kernel& kernel, const CudaTarget& target, const ShownOfGrids& shown = {});

// The plan before the pass of that name.
CudaPlan plan_before(const ir::Kernel& kernel, const CudaTarget& target, std::string_view name);

}  // namespace tegula::passes

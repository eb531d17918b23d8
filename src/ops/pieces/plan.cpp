#include "ops/pieces/plan.hpp"

#include <algorithm>

#include "ops/schema/bound.hpp"
#include "runtime/machine/processors.hpp"

namespace tegula::ops {

int planned_gpu_processors(const BoundCall& call) {
  return call.device().is_cpu() ? gpu_processors : processors_of(call.device());
}

int planned_threads(const BoundCall& call) {
  const Target target = call.target();
  const bool by_threads = target == Target::cpu() || target == Target::automatic();
  return call.device().is_cpu() && by_threads ? processors_of(call.device()) : 1;
}

int planned_splits(std::int64_t blocks, std::int64_t steps, const GpuSplit& split, int processors) {
  const std::int64_t wanted =
      std::int64_t{split.blocks_of_processor} * processors / std::max<std::int64_t>(blocks, 1);
  return static_cast<int>(
      std::clamp<std::int64_t>(std::min(wanted, steps / split.least_steps), 1, split.most));
}

}  // namespace tegula::ops

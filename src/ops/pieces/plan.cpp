#include "ops/pieces/plan.hpp"

#include "ops/schema/bound.hpp"
#include "runtime/machine/processors.hpp"

namespace tegula::ops {

int planned_gpu_processors(const BoundCall& call) {
  return call.device().is_cpu() ? gpu_processors : processors_of(call.device());
}

}  // namespace tegula::ops

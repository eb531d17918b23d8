#include "ops/schema/functions.hpp"

#include "runtime/machine/cpu_features.hpp"
#include "runtime/machine/environment.hpp"

namespace tegula::ops {

Target target_for(Target target, const Device& device) {
  if (target != Target::automatic()) return target;
  return environment_target().value_or(device.is_cpu() ? target : Target::cuda());
}

DType multiplied_type(DType type, bool on_gpu) {
  const bool narrow = on_gpu ? type.bits() == 16 : type == bf16 && has_tile_registers();
  return narrow ? type : f32;
}

}  // namespace tegula::ops

#include "ops/schema/functions.hpp"

#include <optional>

#include "ops/schema/tile_registers.hpp"
#include "runtime/machine/cpu_features.hpp"
#include "runtime/machine/environment.hpp"

namespace tegula::ops {

namespace {

thread_local std::optional<bool> supposed_tile_registers;

}  // namespace

SupposedTileRegisters::SupposedTileRegisters(bool present) { supposed_tile_registers = present; }
SupposedTileRegisters::~SupposedTileRegisters() { supposed_tile_registers.reset(); }

Target target_for(Target target, const Device& device) {
  if (target != Target::automatic()) return target;
  return environment_target().value_or(device.is_cpu() ? target : Target::cuda());
}

DType multiplied_type(DType type, bool on_gpu) {
  if (on_gpu) return type.bits() == 16 ? type : f32;
  return type == bf16 && supposed_tile_registers.value_or(way_of_bf16_products() != 0) ? type : f32;
}

}  // namespace tegula::ops

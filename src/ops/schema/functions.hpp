// Runs calls of operators.
#pragma once
#include "tegula/runtime.hpp"

namespace tegula::ops {

// The target; what `automatic` stands for where the tensors of a call are.
Target target_for(Target target, const Device& device);
// Whether plans are those of GPUs, of what target_for() gives. `emulated()`, which tests instructions, runs
// what is planned for CPUs: plans of GPUs run on `emulated_sm90()`.
inline bool is_planned_for_gpus(Target target) {
  return target == Target::cuda() || target == Target::cuda_sm80() || target == Target::emulated_sm90();
}
// The type of tiles that are multiplied: that of 16-bit tensors on a GPU and, for bf16, on a CPU with tile
// registers; f32 else.
DType multiplied_type(DType type, bool on_gpu);

}  // namespace tegula::ops

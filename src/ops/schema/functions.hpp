// Where calls of operators run.
#pragma once
#include "tegula/runtime.hpp"

namespace tegula::ops {

// The target; what `automatic` stands for where the tensors of a call lie.
Target target_for(Target target, const Device& device);
// Whether plans are those of GPUs. `emulated()`, which tests instructions, runs what is planned for CPUs:
// plans of GPUs run on `emulated_sm90()`.
inline bool runs_on_gpu(Target target, const Device& device) {
  const Target own = target_for(target, device);
  return own == Target::cuda() || own == Target::cuda_sm80() || own == Target::emulated_sm90();
}
// The type of tiles that are multiplied: f32 on a CPU, that of 16-bit tensors on a GPU.
DType multiplied_type(DType type, bool on_gpu);

}  // namespace tegula::ops

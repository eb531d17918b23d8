// Rows divided by their root mean square, and the gradients of that.
#pragma once
#include <optional>

#include "tegula/runtime.hpp"

namespace tegula::ops {

struct RmsNorm {
  TensorRef x = {};                      // [..., d], f32, f16 or bf16
  std::optional<TensorRef> weight = {};  // [d], f32, f16 or bf16
  float eps = 1e-6f;                     // positive
  std::optional<TensorRef> out = {};     // written instead of a new tensor
  Target target = Target::automatic();
};

// x / sqrt(mean(x²) + eps) · weight along the last dimension, of x's shape and dtype; computed in f32. Wrong
// shapes, dtypes or options are an ArgumentError.
Tensor rms_norm(const TensorRef& x, RmsNorm options = {});

}  // namespace tegula::ops

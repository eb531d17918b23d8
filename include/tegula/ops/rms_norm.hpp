// Rows divided by their root mean square, the same of sums of two rows, and gradients of both.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct RmsNorm {
  TensorRef x = {};                      // [..., d], f32, f16 or bf16
  std::optional<TensorRef> weight = {};  // [d], f32, f16 or bf16
  float eps = 1e-6f;                     // positive
  std::optional<TensorRef> out = {};     // written instead of a new tensor
  Target target = Target::automatic();
};

// x / sqrt(mean(x²) + eps) · weight along the last dimension, of x's shape and dtype; computed in f32. d is
// at most 16384. Wrong shapes, dtypes or options are an ArgumentError.
Tensor rms_norm(const TensorRef& x, RmsNorm options = {});

struct RmsNormGradients {
  Tensor dx, dweight;  // of x's shape and dtype; f32 [d], empty without a weight
};

// The gradients of x and weight for dout, the gradient of rms_norm's result, of its shape and dtype. The sums
// over rows are the same at every call. Wrong shapes, dtypes or options are an ArgumentError.
RmsNormGradients rms_norm_backward(const TensorRef& dout, const TensorRef& x, RmsNorm options = {});

struct AddRmsNorm {
  TensorRef x = {}, residual = {};       // [..., d], f32, f16 or bf16
  std::optional<TensorRef> weight = {};  // [d], f32, f16 or bf16
  float eps = 1e-6f;                     // positive
  std::optional<TensorRef> out = {}, sum = {};
  Target target = Target::automatic();
};
struct AddNormResult {
  Tensor out, sum;  // both of x's shape and dtype
};

// sum = x + residual, rounded to their dtype, and out = rms_norm(sum). Its gradients are those of the
// operator add_rms_norm_backward.
AddNormResult add_rms_norm(const TensorRef& x, const TensorRef& residual, AddRmsNorm options = {});

}  // namespace tegula::ops
TEGULA_API_END

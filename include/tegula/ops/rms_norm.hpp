// RMS normalisation of rows and of sums of two rows, and the gradients.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct RmsNorm {
  TensorRef x = {};                      // [..., d], f32, f16 or bf16
  std::optional<TensorRef> weight = {};  // [d], f32, f16 or bf16
  float eps = 1e-6f;                     // positive
  std::optional<TensorRef> out = {};     // preallocated output
  Target target = Target::automatic();
};

// x / sqrt(mean(x²) + eps) · weight along the last dimension, of x's shape and dtype; computed in f32.
// Throws an ArgumentError for wrong shapes, dtypes or options.
Tensor rms_norm(const TensorRef& x, RmsNorm options = {});

struct RmsNormGradients {
  Tensor dx, dweight;  // of x's shape and dtype; f32 [d], empty without a weight
};

// The gradients of x and weight for dout, the gradient of rms_norm's result, of the same shape and dtype.
// Bitwise reproducible. Throws an ArgumentError for wrong shapes, dtypes or options.
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

// sum = x + residual, rounded to their dtype, and out = rms_norm(sum). Throws an ArgumentError for wrong
// shapes, dtypes or options.
AddNormResult add_rms_norm(const TensorRef& x, const TensorRef& residual, AddRmsNorm options = {});

struct AddRmsNormGradients {
  Tensor dx, dresidual, dweight;  // of x's shape and dtype; f32 [d], empty without a weight
};

// The gradients of x, residual and weight for dout and dsum, those of the two results, of their shape and
// dtype. Bitwise reproducible. Throws an ArgumentError for wrong shapes, dtypes or options.
AddRmsNormGradients add_rms_norm_backward(const TensorRef& dout, const TensorRef& dsum, const TensorRef& x,
                                          const TensorRef& residual, AddRmsNorm options = {});

}  // namespace tegula::ops
TEGULA_API_END

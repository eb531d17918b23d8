// Layer normalisation of rows and of sums of two rows, and the gradients.
#pragma once
#include "tegula/ops/rms_norm.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct LayerNorm {
  TensorRef x = {};                                 // [..., d], f32, f16 or bf16
  std::optional<TensorRef> weight = {}, bias = {};  // [d], f32, f16 or bf16
  float eps = 1e-5f;                                // positive
  std::optional<TensorRef> out = {};                // preallocated output
  Target target = Target::automatic();
};

// (x − mean(x)) / sqrt(variance(x) + eps) · weight + bias along the last dimension, of x's shape and dtype;
// computed in f32, the variance from differences from the mean. Throws an ArgumentError for wrong shapes,
// dtypes or options.
Tensor layer_norm(const TensorRef& x, LayerNorm options = {});

struct LayerNormGradients {
  Tensor dx, dweight, dbias;  // of x's shape and dtype; f32 [d], empty without weight or bias
};

// The gradients of x, weight and bias for dout, the gradient of layer_norm's result, of the same shape and
// dtype. Bitwise reproducible.
LayerNormGradients layer_norm_backward(const TensorRef& dout, const TensorRef& x, LayerNorm options = {});

struct AddLayerNorm {
  TensorRef x = {}, residual = {};                  // [..., d], f32, f16 or bf16
  std::optional<TensorRef> weight = {}, bias = {};  // [d], f32, f16 or bf16
  float eps = 1e-5f;                                // positive
  std::optional<TensorRef> out = {}, sum = {};
  Target target = Target::automatic();
};

// sum = x + residual, rounded to their dtype, and out = layer_norm(sum). Throws an ArgumentError for wrong
// shapes, dtypes or options.
AddNormResult add_layer_norm(const TensorRef& x, const TensorRef& residual, AddLayerNorm options = {});

struct AddLayerNormGradients {
  Tensor dx, dresidual, dweight, dbias;  // of x's shape and dtype; f32 [d], empty without weight or bias
};

// The gradients of x, residual, weight and bias for dout and dsum, those of the two results, of their shape
// and dtype. Bitwise reproducible. Throws an ArgumentError for wrong shapes, dtypes or options.
AddLayerNormGradients add_layer_norm_backward(const TensorRef& dout, const TensorRef& dsum,
                                              const TensorRef& x, const TensorRef& residual,
                                              AddLayerNorm options = {});

}  // namespace tegula::ops
TEGULA_API_END

// Rows minus their mean, divided by their standard deviation; the same of sums of two rows; gradients.
#pragma once
#include "tegula/ops/rms_norm.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct LayerNorm {
  TensorRef x = {};                                 // [..., d], f32, f16 or bf16
  std::optional<TensorRef> weight = {}, bias = {};  // [d], f32, f16 or bf16
  float eps = 1e-5f;                                // positive
  std::optional<TensorRef> out = {};                // written instead of a new tensor
  Target target = Target::automatic();
};

// (x − mean(x)) / sqrt(variance(x) + eps) · weight + bias along the last dimension, of x's shape and dtype;
// computed in f32, the variance from differences to the mean. d is at most 16384. Wrong shapes, dtypes or
// options are an ArgumentError.
Tensor layer_norm(const TensorRef& x, LayerNorm options = {});

struct LayerNormGradients {
  Tensor dx, dweight, dbias;  // of x's shape and dtype; f32 [d], empty without a weight or a bias
};

// The gradients of x, weight and bias for dout, the gradient of layer_norm's result, of its shape and dtype.
// The sums over rows are the same at every call.
LayerNormGradients layer_norm_backward(const TensorRef& dout, const TensorRef& x, LayerNorm options = {});

struct AddLayerNorm {
  TensorRef x = {}, residual = {};                  // [..., d], f32, f16 or bf16
  std::optional<TensorRef> weight = {}, bias = {};  // [d], f32, f16 or bf16
  float eps = 1e-5f;                                // positive
  std::optional<TensorRef> out = {}, sum = {};
  Target target = Target::automatic();
};

// sum = x + residual, rounded to their dtype, and out = layer_norm(sum). Its gradients are those of the
// operator add_layer_norm_backward.
AddNormResult add_layer_norm(const TensorRef& x, const TensorRef& residual, AddLayerNorm options = {});

}  // namespace tegula::ops
TEGULA_API_END

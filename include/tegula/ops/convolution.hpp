// Convolutions over one, two and three dimensions, channels last, and their gradients.
#pragma once
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct Conv1d {
  TensorRef x = {};                           // [batch, width, channels], f32, f16 or bf16
  TensorRef weight = {};                      // [features, taps_w, channels / groups]
  std::optional<TensorRef> bias = {};         // [features], f32, f16 or bf16
  int stride = 1, padding = 0, dilation = 1;  // the same in all dimensions
  int groups = 1;                             // channels and features are divided into so many groups
  std::optional<TensorRef> out = {};          // preallocated output
  Target target = Target::automatic();
};
struct Conv2d {
  TensorRef x = {};       // [batch, height, width, channels]
  TensorRef weight = {};  // [features, taps_h, taps_w, channels / groups]
  std::optional<TensorRef> bias = {};
  int stride = 1, padding = 0, dilation = 1;
  int groups = 1;
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};
struct Conv3d {
  TensorRef x = {};       // [batch, depth, height, width, channels]
  TensorRef weight = {};  // [features, taps_d, taps_h, taps_w, channels / groups]
  std::optional<TensorRef> bias = {};
  int stride = 1, padding = 0, dilation = 1;
  int groups = 1;
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};

// out[b, h, w, f] = bias[f] + Σ x[b, h · stride + r · dilation − padding, w · stride + s · dilation −
// padding, c] · weight[f, r, s, c], where elements outside x are zeros: [batch, out_height, out_width,
// features]; likewise over one and three dimensions. Feature f uses the channels of its own group. The shapes
// are PyTorch's with the channels moved to the end, as which its channels_last tensors can be viewed without
// a copy. Throws an ArgumentError for wrong shapes, dtypes or options.
Tensor conv1d(const TensorRef& x, const TensorRef& weight, Conv1d options = {});
Tensor conv2d(const TensorRef& x, const TensorRef& weight, Conv2d options = {});
Tensor conv3d(const TensorRef& x, const TensorRef& weight, Conv3d options = {});

struct ConvGradients {
  Tensor dx;              // of x's dtype
  Tensor dweight, dbias;  // f32; dbias is empty without a bias
};
// The gradients for dout, the gradient of the result. Throws an ArgumentError for wrong shapes, dtypes or
// options.
ConvGradients conv1d_backward(const TensorRef& dout, const TensorRef& x, const TensorRef& weight,
                              Conv1d options = {});
ConvGradients conv2d_backward(const TensorRef& dout, const TensorRef& x, const TensorRef& weight,
                              Conv2d options = {});
ConvGradients conv3d_backward(const TensorRef& dout, const TensorRef& x, const TensorRef& weight,
                              Conv3d options = {});

}  // namespace tegula::ops
TEGULA_API_END

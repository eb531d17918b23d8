// Convolutions over two dimensions.
#pragma once
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct Conv2d {
  TensorRef x = {};                           // [batch, height, width, channels], f32, f16 or bf16
  TensorRef weight = {};                      // [features, taps_h, taps_w, channels]
  std::optional<TensorRef> bias = {};         // [features], f32, f16 or bf16
  int stride = 1, padding = 0, dilation = 1;  // of both dimensions
  std::optional<TensorRef> out = {};          // written instead of a new tensor
  Target target = Target::automatic();
};

// out[b, h, w, f] = bias[f] + Σ x[b, h · stride + r · dilation − padding, w · stride + s · dilation −
// padding, c] · weight[f, r, s, c], where elements outside of x are zeros: [batch, out_height, out_width,
// features]. These are PyTorch's shapes permuted by (0, 2, 3, 1), which tensors of its channels_last format
// are without a copy. Wrong shapes, dtypes or options are an ArgumentError.
Tensor conv2d(const TensorRef& x, const TensorRef& weight, Conv2d options = {});

}  // namespace tegula::ops
TEGULA_API_END

// The gated sum of the branches of native sparse attention (Yuan et al., 2025), and its gradients.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct NsaCombine {
  TensorRef compressed = {}, selected = {};  // [..., d], f32, f16 or bf16
  TensorRef gates = {};                      // [..., branches]: one logit per branch
  std::optional<TensorRef> window = {};      // [..., d]
  std::optional<TensorRef> out = {};         // preallocated output
  Target target = Target::automatic();
};

// sigmoid(gates[0]) · compressed + sigmoid(gates[1]) · selected + sigmoid(gates[2]) · window computed in f32,
// with the shape and dtype of the branches. Without a window there are two gates. The leading dimensions,
// such as tokens and heads, may be in any order. Throws an ArgumentError for wrong shapes, dtypes or options.
Tensor nsa_combine(const TensorRef& compressed, const TensorRef& selected, const TensorRef& gates,
                   NsaCombine options = {});

struct NsaCombineGradients {
  Tensor dcompressed, dselected, dgates, dwindow;  // as the inputs; no elements without a window
};

// The gradients for dout, the gradient of the result.
NsaCombineGradients nsa_combine_backward(const TensorRef& dout, const TensorRef& compressed,
                                         const TensorRef& selected, const TensorRef& gates,
                                         NsaCombine options = {});

}  // namespace tegula::ops
TEGULA_API_END

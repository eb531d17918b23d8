// The branches of native sparse attention, summed by gates (Yuan et al., 2025), and the gradients.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct NsaCombine {
  TensorRef compressed = {}, selected = {};  // [..., d], f32, f16 or bf16
  TensorRef gates = {};                      // [..., branches]: a logit for each branch
  std::optional<TensorRef> window = {};      // [..., d]
  std::optional<TensorRef> out = {};         // written instead of a new tensor
  Target target = Target::automatic();
};

// sigmoid(gates[0]) · compressed + sigmoid(gates[1]) · selected + sigmoid(gates[2]) · window in f32, of the
// shape and the dtype of the branches. Without a window there are two gates. Leading dimensions are those of
// tokens and heads, in any order. Wrong shapes, dtypes or options are an ArgumentError.
Tensor nsa_combine(const TensorRef& compressed, const TensorRef& selected, const TensorRef& gates,
                   NsaCombine options = {});

struct NsaCombineGradients {
  Tensor dcompressed, dselected, dgates, dwindow;  // as the inputs; no elements without a window
};

// The gradients for dout, that of the result.
NsaCombineGradients nsa_combine_backward(const TensorRef& dout, const TensorRef& compressed,
                                         const TensorRef& selected, const TensorRef& gates,
                                         NsaCombine options = {});

}  // namespace tegula::ops
TEGULA_API_END

// Softmax of rows, its logarithm, and the gradients of both.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct Softmax {
  TensorRef x = {};                   // [..., d], f32, f16 or bf16
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};
struct LogSoftmax {
  TensorRef x = {};
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};

// exp(x) / sum(exp(x)) along the last dimension, of any length, of x's shape and dtype; computed in f32. A
// row that consists of −∞ gives NaN.
Tensor softmax(const TensorRef& x, Softmax options = {});
// x − log(sum(exp(x))).
Tensor log_softmax(const TensorRef& x, LogSoftmax options = {});

// The gradient of x for dout, the gradient of the result, of the same shape and dtype.
Tensor softmax_backward(const TensorRef& dout, const TensorRef& x, Softmax options = {});
Tensor log_softmax_backward(const TensorRef& dout, const TensorRef& x, LogSoftmax options = {});

}  // namespace tegula::ops
TEGULA_API_END

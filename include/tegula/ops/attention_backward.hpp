// Gradients of softmax attention.
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct AttentionBackwardOptions {
  // Gradient of the loss with respect to lse, f32 and of the same shape, for outputs that are merged by their
  // lse. Ignored where lse is −∞.
  std::optional<TensorRef> dlse = {};
  std::optional<TensorRef> dq = {}, dk = {}, dv = {}, dsinks = {};  // preallocated outputs
  // Bitwise reproducible. If false, the contributions to dq are added in any order if that is faster.
  bool deterministic = true;
};

struct AttentionGradients {
  Tensor dq, dk, dv;  // as q, k, v
  Tensor dsinks;      // f32 [heads]; no elements if the call has no sinks
};

// The gradients of sum(dout · out) + sum(dlse · lse) with respect to q, k, v and the sinks, where out and lse
// are the results of attention(q, k, v, options). dout has the shape and dtype of out. A query that sees no
// key contributes nothing. The `out`, `lse` and `splits` of the options have no effect here; `tiles` are
// those of this call. Throws an ArgumentError for wrong shapes, dtypes or options.
AttentionGradients attention_backward(const TensorRef& dout, const TensorRef& q, const TensorRef& k,
                                      const TensorRef& v, const TensorRef& out, const TensorRef& lse,
                                      const AttentionOptions& options = {},
                                      const AttentionBackwardOptions& gradients = {});

}  // namespace tegula::ops
TEGULA_API_END

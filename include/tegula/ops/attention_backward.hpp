// Gradients of softmax attention.
#pragma once
#include "tegula/ops/attention.hpp"

namespace tegula::ops {

struct AttentionBackwardOptions {
  // Gradient of the loss with respect to lse, in its shape: for outputs that are merged by their lse. Not
  // looked at where lse is −∞.
  std::optional<TensorRef> dlse = {};
  std::optional<TensorRef> dq = {}, dk = {}, dv = {}, dsinks = {};  // written instead of new tensors
};

struct AttentionGradients {
  Tensor dq, dk, dv;  // as q, k, v
  Tensor dsinks;      // f32 [heads]; no elements where the call has no sinks
};

// The gradients of sum(dout · out) + sum(dlse · lse) with respect to q, k, v and the sinks, where out and lse
// are the results of attention(q, k, v, options). dout is as out. The sums of a gradient are formed in one
// order, so that results are equal bit by bit in every run; a query that sees no key contributes nothing. The
// `out` and `lse` of the options have no effect here; `tiles` are those of this call.
AttentionGradients attention_backward(const TensorRef& dout, const TensorRef& q, const TensorRef& k,
                                      const TensorRef& v, const TensorRef& out, const TensorRef& lse,
                                      const AttentionOptions& options = {},
                                      const AttentionBackwardOptions& gradients = {});

}  // namespace tegula::ops

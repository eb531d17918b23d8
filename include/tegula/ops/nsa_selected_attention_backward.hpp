// Gradients of attention over selected blocks.
#pragma once
#include "tegula/ops/nsa_selected_attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct NsaSelectedBackwardOptions {
  // Gradient of lse, f32 and of the same shape; ignored where lse is −∞.
  std::optional<TensorRef> dlse = {};
  // For a window in the options: the gradient of its output, its results, and the gradient of its lse.
  // Without dwindow_out, the window does not contribute to the gradients. Shapes and dtypes are those of out
  // and lse.
  std::optional<TensorRef> dwindow_out = {}, window_out = {}, window_lse = {}, dwindow_lse = {};
  // Also compute the gradient of sel_scale.
  bool sel_scale_gradient = false;
  std::optional<TensorRef> dq = {}, dk = {}, dv = {}, dsel_scale = {};  // preallocated outputs
};

struct NsaSelectedGradients {
  Tensor dq, dk, dv;  // as q, k, v
  // f32, in the shape of block_indices; no elements unless requested. 0 for an entry that selects nothing, or
  // a block that an earlier entry of its row has selected (with `repeats`, duplicates share equally).
  Tensor dsel_scale;
};

// The gradients of sum(dout · out) + sum(dlse · lse), plus the same sums for the window, with respect to q, k
// and v, where out and lse are the results of nsa_selected_attention(q, k, v, block_indices, options). Sums
// are formed in a fixed order, so results are bitwise reproducible. The kernel itself inverts the lists. dout
// has the shape and dtype of out. The outputs in the options have no effect here. Wrong shapes, dtypes or
// options are an ArgumentError, and so is an output that shares memory with an input or another output.
NsaSelectedGradients nsa_selected_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                     const TensorRef& k, const TensorRef& v,
                                                     const TensorRef& block_indices, const TensorRef& out,
                                                     const TensorRef& lse,
                                                     const NsaSelectedOptions& options = {},
                                                     const NsaSelectedBackwardOptions& gradients = {});

}  // namespace tegula::ops
TEGULA_API_END

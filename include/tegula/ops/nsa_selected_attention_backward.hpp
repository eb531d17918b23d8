// Gradients of attention over selected blocks.
#pragma once
#include "tegula/ops/nsa_selected_attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct NsaSelectedBackwardOptions {
  // Gradient of lse, f32 in its shape; ignored where lse is −∞.
  std::optional<TensorRef> dlse = {};
  // The window of the options: gradient of its output, its results, and the gradient of its lse. Without
  // dwindow_out the window has no part in the gradients. Shapes and dtypes are those of out and lse.
  std::optional<TensorRef> dwindow_out = {}, window_out = {}, window_lse = {}, dwindow_lse = {};
  // Also the gradient of sel_scale.
  bool sel_scale_gradient = false;
  std::optional<TensorRef> dq = {}, dk = {}, dv = {}, dsel_scale = {};  // written instead of new tensors
};

struct NsaSelectedGradients {
  Tensor dq, dk, dv;  // as q, k, v
  // f32, as block_indices; no elements unless wanted. 0 where an entry selects nothing, or a block that an
  // earlier entry of its row has selected (with `repeats`: equal shares).
  Tensor dsel_scale;
};

// The gradients of sum(dout · out) + sum(dlse · lse), and the same sums of the window, with respect to q, k
// and v, where out and lse are the results of nsa_selected_attention(q, k, v, block_indices, options). The
// sums of a gradient are formed in one order, so that results are equal bit by bit in every run. The lists
// are inverted by the kernel itself. dout has the shape and dtype of out. The outputs named in the
// options have no effect here. Wrong shapes, dtypes or options are an ArgumentError, and so is an output that
// shares memory with an input or another output.
NsaSelectedGradients nsa_selected_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                     const TensorRef& k, const TensorRef& v,
                                                     const TensorRef& block_indices, const TensorRef& out,
                                                     const TensorRef& lse,
                                                     const NsaSelectedOptions& options = {},
                                                     const NsaSelectedBackwardOptions& gradients = {});

}  // namespace tegula::ops
TEGULA_API_END

// The last step of native sparse attention in one kernel: attention over selected blocks and the gated sum
// with the other branches (Yuan et al., 2025); and its gradients.
#pragma once
#include "tegula/ops/nsa_selected_attention_backward.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct NsaGatedOptions : NsaSelectedOptions {
  // The result and the lse of the selected branch, and of the window, are results, too: gradients need them.
  bool keep_branches = false;
  std::optional<TensorRef> selected = {};  // preallocated, as the outputs that nsa_selected_attention has
};

struct NsaGatedResult {
  Tensor out;                     // the sum
  Tensor selected, lse;           // no elements unless branches are kept
  Tensor window_out, window_lse;  // no elements without a window
};

// Equals nsa_combine of `compressed`, the result of nsa_selected_attention and, with options.window > 0, the
// result of its window. gates [..., 2], or [..., 3] with a window, are logits per token and head in the order
// of the other tensors. Unless it is kept, the selected branch does not go through memory. Throws an
// ArgumentError for wrong shapes, dtypes or options.
NsaGatedResult nsa_gated_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                   const TensorRef& block_indices, const TensorRef& compressed,
                                   const TensorRef& gates, const NsaGatedOptions& options = {});

struct NsaGatedBackwardOptions {
  // Gradients of the branches that were kept, where something else depends on them.
  std::optional<TensorRef> dselected = {}, dlse = {}, dwindow_out = {}, dwindow_lse = {};
  // With a window: its results.
  std::optional<TensorRef> window_out = {}, window_lse = {};
  bool sel_scale_gradient = false;  // also the gradient of sel_scale
  // Preallocated outputs.
  std::optional<TensorRef> dq = {}, dk = {}, dv = {}, dcompressed = {}, dgates = {}, dsel_scale = {};
};

struct NsaGatedGradients {
  Tensor dq, dk, dv, dcompressed, dgates;  // as q, k, v, compressed, gates
  Tensor dsel_scale;                       // as that of nsa_selected_attention_backward
};

// The gradients of sum(dout · out), plus the same sums for branches that were kept, with respect to q, k, v,
// compressed and gates, where selected and lse, and in `gradients` window_out and window_lse, are results of
// nsa_gated_attention with `options`, which keep branches. The gradient of a branch is rounded once. The
// outputs in the options have no effect here. Throws an ArgumentError for wrong shapes, dtypes or options.
NsaGatedGradients nsa_gated_attention_backward(const TensorRef& dout, const TensorRef& q, const TensorRef& k,
                                               const TensorRef& v, const TensorRef& block_indices,
                                               const TensorRef& compressed, const TensorRef& gates,
                                               const TensorRef& selected, const TensorRef& lse,
                                               const NsaGatedOptions& options = {},
                                               const NsaGatedBackwardOptions& gradients = {});

}  // namespace tegula::ops
TEGULA_API_END

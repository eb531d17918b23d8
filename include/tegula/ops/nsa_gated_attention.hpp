// The last step of native sparse attention in one kernel: attention over selected blocks and the gated sum
// with the other branches (Yuan et al., 2025); and its gradients.
#pragma once
#include "tegula/ops/nsa_selected_attention_backward.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// Equals nsa_combine of `compressed`, the result of nsa_selected_attention and, with options.window > 0, the
// result of its window. gates [..., 2], or [..., 3] with a window, are logits per token and head in the order
// of the other tensors. Neither the selected branch nor the window's result goes through memory. Throws
// an ArgumentError for wrong shapes, dtypes or options.
Tensor nsa_gated_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                           const TensorRef& block_indices, const TensorRef& compressed,
                           const TensorRef& gates, const NsaSelectedOptions& options = {});

struct NsaGatedBackwardOptions {
  bool sel_scale_gradient = false;  // also the gradient of sel_scale
  // Written instead of new tensors.
  std::optional<TensorRef> dq = {}, dk = {}, dv = {}, dcompressed = {}, dgates = {}, dsel_scale = {};
};

struct NsaGatedGradients {
  Tensor dq, dk, dv, dcompressed, dgates;  // as q, k, v, compressed, gates
  Tensor dsel_scale;                       // as that of nsa_selected_attention_backward
};

// The gradients for dout, that of the result. The forward keeps nothing for them: the selected branch and the
// window are computed once more, which takes longer, and less memory, than the gradients of
// nsa_selected_attention and nsa_combine. The outputs named in the options have no effect here. Wrong shapes,
// dtypes or options are an ArgumentError.
NsaGatedGradients nsa_gated_attention_backward(const TensorRef& dout, const TensorRef& q, const TensorRef& k,
                                               const TensorRef& v, const TensorRef& block_indices,
                                               const TensorRef& compressed, const TensorRef& gates,
                                               const NsaSelectedOptions& options = {},
                                               const NsaGatedBackwardOptions& gradients = {});

}  // namespace tegula::ops
TEGULA_API_END

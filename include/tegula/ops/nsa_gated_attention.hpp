// The last step of native sparse attention in one kernel: attention over selected blocks, summed with the
// other branches by gates (Yuan et al., 2025).
#pragma once
#include "tegula/ops/nsa_selected_attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// What nsa_combine gives for `compressed`, the result of nsa_selected_attention and, with options.window > 0,
// that of its window: gates [..., 2] or [..., 3] with the window's, logits for every token and head in the
// order of the other tensors. Neither the selected branch nor its sum goes through memory. For calls without
// gradients, which need each branch's result. Wrong shapes, dtypes or options are an ArgumentError.
Tensor nsa_gated_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                           const TensorRef& block_indices, const TensorRef& compressed,
                           const TensorRef& gates, const NsaSelectedOptions& options = {});

}  // namespace tegula::ops
TEGULA_API_END

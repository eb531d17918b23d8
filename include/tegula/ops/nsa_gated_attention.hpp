// The last step of native sparse attention in one kernel: attention over selected blocks and the gated sum
// with the other branches (Yuan et al., 2025).
#pragma once
#include "tegula/ops/nsa_selected_attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// Equals nsa_combine of `compressed`, the result of nsa_selected_attention and, with options.window > 0, the
// result of its window. gates [..., 2], or [..., 3] with a window, are logits per token and head in the order
// of the other tensors. Neither the selected branch nor the window's result goes through memory. For
// inference only: gradients need the result of each branch. Throws an ArgumentError for wrong shapes, dtypes
// or options.
Tensor nsa_gated_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                           const TensorRef& block_indices, const TensorRef& compressed,
                           const TensorRef& gates, const NsaSelectedOptions& options = {});

}  // namespace tegula::ops
TEGULA_API_END

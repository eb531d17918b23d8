// The formulas of the operators in double precision, against which results are checked. They take the
// arguments of the operators without checking them. Outputs are f64.
#pragma once
#include "tegula/ops.hpp"

namespace tegula::ops::reference {

// With `steps`, every step is rounded to that type: the error of the plain computation in it, by which
// results are judged. `weights` are rounded as a step of their own before values are multiplied by them.
AttentionResult attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                          const AttentionOptions& options, DType steps = f64, DType weights = f64);
// They compute the results of the forward pass anew.
AttentionGradients attention_backward(const TensorRef& dout, const TensorRef& q, const TensorRef& k,
                                      const TensorRef& v, const AttentionOptions& options,
                                      const std::optional<TensorRef>& dlse, DType steps = f64);
AttentionResult block_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                       const BlockSparseOptions& options, DType steps = f64);
AttentionGradients block_sparse_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                   const TensorRef& k, const TensorRef& v,
                                                   const BlockSparseOptions& options,
                                                   const std::optional<TensorRef>& dlse, DType steps = f64);
NsaSelectedResult nsa_selected_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                         const TensorRef& block_indices, const NsaSelectedOptions& options,
                                         DType steps = f64);
NsaSelectedGradients nsa_selected_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                     const TensorRef& k, const TensorRef& v,
                                                     const TensorRef& block_indices,
                                                     const NsaSelectedOptions& options,
                                                     const NsaSelectedBackwardOptions& gradients,
                                                     DType steps = f64);

}  // namespace tegula::ops::reference

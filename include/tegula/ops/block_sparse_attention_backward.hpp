// Gradients of block-sparse attention.
#pragma once
#include "tegula/ops/block_sparse_attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct BlockSparseBackwardOptions {
  // Gradient of lse, f32 and of the same shape; ignored where lse is −∞.
  std::optional<TensorRef> dlse = {};
  std::optional<TensorRef> dq = {}, dk = {}, dv = {};  // preallocated outputs
  // Bitwise reproducible. If false, the contributions to dq are added in any order if that is faster.
  bool deterministic = true;
};

struct BlockSparseGradients {
  Tensor dq, dk, dv;  // as q, k, v
};

// The gradients of sum(dout · out) + sum(dlse · lse) with respect to q, k and v, where out and lse are the
// results of block_sparse_attention(q, k, v, options). The kernel itself inverts the lists (from key blocks
// to the query blocks that selected them); nothing is planned on the host. dout has the shape and dtype of
// out. The `out`, `lse` and `check_indices` of the options have no effect here; `tiles` are those of this
// call. Throws an ArgumentError for wrong shapes, dtypes or options.
BlockSparseGradients block_sparse_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                     const TensorRef& k, const TensorRef& v,
                                                     const TensorRef& out, const TensorRef& lse,
                                                     const BlockSparseOptions& options,
                                                     const BlockSparseBackwardOptions& gradients = {});

}  // namespace tegula::ops
TEGULA_API_END

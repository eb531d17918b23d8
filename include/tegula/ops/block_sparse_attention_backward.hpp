// Gradients of block-sparse attention.
#pragma once
#include "tegula/ops/block_sparse_attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct BlockSparseBackwardOptions {
  // Gradient of lse, f32 in its shape; ignored where lse is −∞.
  std::optional<TensorRef> dlse = {};
  std::optional<TensorRef> dq = {}, dk = {}, dv = {};  // written instead of new tensors
  // Equal bits in every run. If false, the parts of dq are added in any order where that is faster.
  bool deterministic = true;
};

struct BlockSparseGradients {
  Tensor dq, dk, dv;  // as q, k, v
};

// The gradients of sum(dout · out) + sum(dlse · lse) with respect to q, k and v, where out and lse are the
// results of block_sparse_attention(q, k, v, options). The lists are inverted (from key blocks to the
// query blocks that chose them) by the kernel itself: nothing is planned on the host. dout is as out. The
// `out`, `lse` and `check_indices` of the options have no effect here; `tiles` are those of this call. Wrong
// shapes, dtypes or options are an ArgumentError.
BlockSparseGradients block_sparse_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                     const TensorRef& k, const TensorRef& v,
                                                     const TensorRef& out, const TensorRef& lse,
                                                     const BlockSparseOptions& options,
                                                     const BlockSparseBackwardOptions& gradients = {});

}  // namespace tegula::ops
TEGULA_API_END

// Gradients of block-sparse attention.
#pragma once
#include "tegula/ops/attention_backward.hpp"
#include "tegula/ops/block_sparse_attention.hpp"

namespace tegula::ops {

// The gradients of sum(dout · out) + sum(dlse · lse) with respect to q, k and v, where out and lse are the
// results of block_sparse_attention(q, k, v, options). The lists are turned round (from key blocks to the
// query blocks that chose them) by the kernel itself: nothing is planned on the host. As attention_backward
// otherwise; there are no dsinks.
AttentionGradients block_sparse_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                   const TensorRef& k, const TensorRef& v,
                                                   const TensorRef& out, const TensorRef& lse,
                                                   const BlockSparseOptions& options,
                                                   const AttentionBackwardOptions& gradients = {});

}  // namespace tegula::ops

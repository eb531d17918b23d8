// The tile program of the gradients of the lightning indexer.
#pragma once
#include "ops/latent/indexer_kernel.hpp"

namespace tegula::ops {

struct IndexerBackwardKernel {
  IndexerKernel forward = {};  // whose `queries` are not used
  auto fields() const { return std::tuple(forward); }
};

// Arguments: dlogits [batch, queries, keys], and the forward's without its logits and parts; dq, dk,
// dweights.
lang::Kernel indexer_backward_kernel(const IndexerBackwardKernel& instance);

}  // namespace tegula::ops

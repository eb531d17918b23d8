// The tile programs of the indexer in two levels: what blocks a query may choose, and the logits of the keys
// of the blocks that it has chosen.
#pragma once
#include "ops/latent/indexer_kernel.hpp"

namespace tegula::ops {

struct SeenBlocksKernel {
  bool begins = false, ends = false, causal = false;
  auto fields() const {
    return std::tuple(labelled("begins", begins), labelled("ends", ends), labelled("causal", causal));
  }
};
// Arguments: keys, block_size, block_begins and block_ends [batch, queries], the blocks that contain a key
// that a query sees; then, where the instance has them, begins and ends [batch, queries], offset.
lang::Kernel seen_blocks_kernel(const SeenBlocksKernel& instance);

struct BlockLogitsKernel {
  IndexerKernel indexer = {};  // of one query
  auto fields() const { return std::tuple(indexer); }
};
// Arguments: q [batch, queries, heads, d], k [batch, keys, d], weights [batch, queries, heads], chosen
// [batch, queries, entries], logits [batch, queries, entries · block_size], block_size, parts; then, where
// the instance has them, k_scales [batch, keys], begins and ends [batch, queries], offset. A number that is
// no block has logits of −∞.
lang::Kernel block_logits_kernel(const BlockLogitsKernel& instance);

}  // namespace tegula::ops

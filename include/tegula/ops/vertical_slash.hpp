// Attention to columns and diagonals of the scores.
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct VerticalSlashBlocks {
  // i32 [batch, heads, …] in any order: keys that all queries see, and distances from a query back to a key
  // (0: its own position). Numbers out of range, such as −1, are padding.
  TensorRef vertical = {}, slash = {};
  std::int64_t queries = 0, keys = 0;  // per sequence; the last query is aligned with the last key
  int q_block_size = 64, k_block_size = 64;
  std::optional<TensorRef> mask = {}, columns = {};  // preallocated outputs
  Target target = Target::automatic();
};

struct VerticalSlashResult {
  Tensor mask;  // boolean [batch, heads, q_blocks, k_blocks]: the blocks that a diagonal crosses
  Tensor
      columns;  // i32 [batch, heads, q_blocks, verticals]: single keys outside those blocks, padded with −1
};
// The selection in the form of block_sparse_attention: the mask with both block sizes, the columns as indices
// with k_block_size 1.
VerticalSlashResult vertical_slash_blocks(const TensorRef& vertical, const TensorRef& slash,
                                          std::int64_t queries, std::int64_t keys,
                                          VerticalSlashBlocks options = {});

struct VerticalSlashOptions {
  Layout layout = Layout::bshd;
  int q_block_size = 64, k_block_size = 64;
  std::optional<float> scale = {};  // scale of the scores; default 1/√d
  Target target = Target::automatic();
};
// Causal attention of q [batch, queries, heads, d] to the keys selected by lists per head of q or of k: whole
// blocks of keys along diagonals, and single columns. Each key counts once.
AttentionResult vertical_slash_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                         const TensorRef& vertical, const TensorRef& slash,
                                         const VerticalSlashOptions& options = {});

}  // namespace tegula::ops
TEGULA_API_END

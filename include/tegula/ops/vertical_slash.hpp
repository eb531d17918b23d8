// Attention to columns and diagonals of the scores.
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct VerticalSlashBlocks {
  // i32 [batch, heads, …] in any order: keys that all queries see, and distances from a query to a key before
  // it, that of the query itself being 0. Numbers that are neither, such as −1, are padding.
  TensorRef vertical = {}, slash = {};
  std::int64_t queries = 0, keys = 0;  // of a sequence; the last query stands at the last key
  int q_block_size = 64, k_block_size = 64;
  std::optional<TensorRef> mask = {}, columns = {};  // written instead of new tensors
  Target target = Target::automatic();
};

struct VerticalSlashResult {
  Tensor mask;     // boolean [batch, heads, q_blocks, k_blocks]: blocks of keys that a diagonal crosses
  Tensor columns;  // i32 [batch, heads, q_blocks, verticals]: single keys outside of those blocks, others −1
};
// The choice as block_sparse_attention takes it: the mask with both block sizes, the columns as indices with
// k_block_size 1.
VerticalSlashResult vertical_slash_blocks(const TensorRef& vertical, const TensorRef& slash,
                                          std::int64_t queries, std::int64_t keys,
                                          VerticalSlashBlocks options = {});

struct VerticalSlashOptions {
  Layout layout = Layout::bshd;
  int q_block_size = 64, k_block_size = 64;
  std::optional<float> scale = {};  // of the scores; 1/√d unless given
  Target target = Target::automatic();
};
// Causal attention of q [batch, queries, heads, d] to what the lists of its heads, or of the heads of k,
// name: of diagonals whole blocks of keys, and single columns; each key once.
AttentionResult vertical_slash_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                         const TensorRef& vertical, const TensorRef& slash,
                                         const VerticalSlashOptions& options = {});

}  // namespace tegula::ops
TEGULA_API_END

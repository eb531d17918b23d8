// Attention in which every block of queries sees its own selection of key blocks.
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct BlockSparseOptions {
  Layout layout = Layout::bshd;
  // Queries and keys per block, 1 to 2^20; the last blocks may be shorter.
  int q_block_size = 64, k_block_size = 64;
  // Which key blocks a block of queries sees: exactly one of `indices` and `mask`. `heads` is the number of
  // heads of k (one selection for all query heads of a group) or of q. indices: i32 [batch, heads, q_blocks,
  // entries], in any order. Entries outside [0, k_blocks), such as −1, are ignored, and duplicates count
  // once. counts: i32 [batch, heads, q_blocks], the number of entries of a row that are used; default: all.
  // mask: bool [batch, heads, q_blocks, k_blocks].
  std::optional<TensorRef> indices = {}, counts = {}, mask = {};
  // Packed sequences, and the length of the longest, as in `attention`. The batch axis of indices, counts and
  // mask then indexes sequences, and blocks of queries and of keys are numbered from the beginning of their
  // sequence. q_blocks, and the k_blocks of a mask, are at least those of the longest sequence; rows and
  // columns past the end of a sequence are ignored. Lengths on a GPU are not read by the host: without
  // max_seqlen the shapes of the lists limit a sequence to q_blocks · q_block_size queries and, with a mask,
  // to k_blocks · k_block_size keys.
  std::optional<TensorRef> cu_seqlens_q = {}, cu_seqlens_k = {};
  std::int64_t max_seqlen_q = 0, max_seqlen_k = 0;
  bool causal = false;              // aligned as in `attention`, within the selected blocks
  std::optional<float> scale = {};  // scale of the scores; default 1/√d
  float softcap = 0;                // scores become c · tanh(score / c); 0: off
  // Promises that the used entries of every row of `indices` ascend and are blocks of which its queries see
  // keys, so that a GPU need not sort them. check_indices tells whether they ascend.
  bool ascending = false;
  // Throw an ArgumentError that names the entry if a used entry is neither −1 nor the number of a block. On a
  // GPU the call waits for this check.
  bool check_indices = false;
  std::optional<TensorRef> out = {}, lse = {};  // preallocated outputs
  AttentionTiles tiles = {};
  Target target = Target::automatic();
};

// As `attention`, but only over the selected blocks; shapes, dtypes, results and errors are the same. A query
// that sees no key in its blocks has output 0 and lse −∞.
AttentionResult block_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                       const BlockSparseOptions& options);

// q [batch, queries, heads, d], k and v likewise; topk_indices as `indices` above.
AttentionResult block_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                       int q_block_size, int k_block_size, const TensorRef& topk_indices);

}  // namespace tegula::ops
TEGULA_API_END

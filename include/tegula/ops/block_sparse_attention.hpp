// Attention in which every block of queries sees its own choice of key blocks.
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct BlockSparseOptions {
  Layout layout = Layout::bshd;
  // Queries and keys of a block, 1 to 2^20; the last blocks may be short.
  int q_block_size = 64, k_block_size = 64;
  // Which key blocks a block of queries sees: exactly one of `indices` and `mask`. `heads` is that of k, for
  // all query heads of the group, or that of q.
  // indices: i32 [batch, heads, q_blocks, entries]. Entries outside [0, k_blocks), such as −1, are no block
  // and may stand anywhere; duplicates count once; order does not matter. counts: i32 [batch, heads,
  // q_blocks], how many entries of a row are used; all of them unless given. mask: bool [batch, heads,
  // q_blocks, k_blocks].
  std::optional<TensorRef> indices = {}, counts = {}, mask = {};
  // Packed sequences, and the length of the longest, as in `attention`. The batch axis of indices, counts and
  // mask then indexes sequences, and blocks of queries and of keys are numbered from the beginning of their
  // sequence. q_blocks, and the k_blocks of a mask, are at least those of the longest sequence; rows and
  // columns past the end of a sequence are ignored. Lengths on a GPU are not read: without max_seqlen the
  // shapes of the lists bound a sequence, to q_blocks · q_block_size queries and, with a mask, to k_blocks ·
  // k_block_size keys.
  std::optional<TensorRef> cu_seqlens_q = {}, cu_seqlens_k = {};
  std::int64_t max_seqlen_q = 0, max_seqlen_k = 0;
  bool causal = false;              // aligned as in `attention`, inside the chosen blocks
  std::optional<float> scale = {};  // 1/√d unless given
  float softcap = 0;                // scores become c · tanh(score / c); 0 for none
  // Refuse a call in which a used entry is neither −1 nor the number of a block, with an ArgumentError that
  // names the entry. On a GPU the call waits for this check.
  bool check_indices = false;
  std::optional<TensorRef> out = {}, lse = {};  // written instead of new tensors
  AttentionTiles tiles = {};
  Target target = Target::automatic();
};

// As `attention`, over the chosen blocks only: shapes, dtypes, results and errors are the same. A query whose
// blocks hold no key that it sees has output 0 and lse −∞.
AttentionResult block_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                       const BlockSparseOptions& options);

// q [batch, queries, heads, d], k and v alike; topk_indices as `indices` above.
AttentionResult block_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                       int q_block_size, int k_block_size, const TensorRef& topk_indices);

}  // namespace tegula::ops
TEGULA_API_END

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
  // and may stand anywhere; a block that is named several times counts once; order does not matter. counts:
  // i32 [batch, heads, q_blocks], how many entries of a row count; all of them unless given. mask: bool
  // [batch, heads, q_blocks, k_blocks].
  std::optional<TensorRef> indices = {}, counts = {}, mask = {};
  // Packed sequences, and the most tokens of one, as in `attention`. indices, counts and mask have one member
  // for every sequence where the above says batch, and blocks of queries and of keys count from the beginning
  // of their sequence. q_blocks and the k_blocks of a mask are those of the longest sequence, or more; what
  // is beyond a sequence's own may be anything. Lengths on a GPU are not read: without max_seqlen the lists
  // say how long a sequence is at most, q_blocks · q_block_size queries and, with a mask, k_blocks ·
  // k_block_size keys.
  std::optional<TensorRef> cu_seqlens_q = {}, cu_seqlens_k = {};
  std::int64_t max_seqlen_q = 0, max_seqlen_k = 0;
  bool causal = false;              // aligned as in `attention`, inside the chosen blocks
  std::optional<float> scale = {};  // 1/√d unless given
  float softcap = 0;                // scores become c · tanh(score / c); 0 for none
  // Refuse a call, with an ArgumentError that names the entry, in which one that counts is neither −1 nor the
  // number of a block. On a GPU this waits for the search.
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

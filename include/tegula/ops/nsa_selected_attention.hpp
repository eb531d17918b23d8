// Attention in which every query token sees the key blocks that were selected for it: the selected branch of
// native sparse attention (Yuan et al., 2025), optionally with its sliding window.
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct NsaSelectedOptions {
  Layout layout = Layout::bshd;
  int block_size = 64;  // keys per block, 1 to 2^20
  // i32 [batch, tokens, heads], the number of entries of a row that are used; default: all.
  std::optional<TensorRef> block_counts = {};
  // In the shape of block_indices, f32, f16 or bf16: straight-through multipliers through which a selector is
  // trained. They act as a factor of 1 on the scores that an entry selects; only gradients depend on them.
  std::optional<TensorRef> sel_scale = {};
  bool causal = true;     // hide later keys; the last query is aligned with the last key
  bool diagonal = false;  // the query's own block is always visible
  // Duplicate entries count repeatedly. If false, each block counts once.
  bool repeats = false;
  // With window > 0 there is a second result: attention of the same queries to the `window` keys that end at
  // the query's position. At most 2^29.
  std::int64_t window = 0;
  std::optional<float> scale = {};  // scale of the scores; default 1/√d
  // Packed sequences, as in `attention`; blocks are numbered from the beginning of each sequence.
  std::optional<TensorRef> cu_seqlens_q = {}, cu_seqlens_k = {};
  std::int64_t max_seqlen_q = 0, max_seqlen_k = 0;
  // Throw an ArgumentError that names the entry if a used entry is neither −1 nor the number of a block. On a
  // GPU the call waits for this check.
  bool check_indices = false;
  std::optional<TensorRef> out = {}, lse = {}, window_out = {}, window_lse = {};
  AttentionTiles tiles = {};  // queries: neighbouring tokens that share a tile
  Target target = Target::automatic();
};

struct NsaSelectedResult {
  Tensor out, lse;                // as in `attention`
  Tensor window_out, window_lse;  // no elements without a window
};

// q [batch, tokens, heads, d], k [batch, keys, kv_heads, d], v [batch, keys, kv_heads, d_v] of one dtype,
// f32, f16 or bf16, as in `attention`; block_indices i32 [batch, tokens, selecting heads, entries], with at
// most 4096 entries per row. All lack the batch dimension if packed, and have heads before tokens in the
// layout bhsd. The selecting heads are those of k (for all query heads of a group) or those of q. Block i
// contains keys i · block_size to (i + 1) · block_size − 1. Entries may be in any order; negative entries,
// blocks past the last key, and blocks entirely after the position of a causal query select nothing. A query
// that sees no key has output 0 and lse −∞. Wrong shapes, dtypes or options are an ArgumentError, and so is
// an output that shares memory with an input or another output.
NsaSelectedResult nsa_selected_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                         const TensorRef& block_indices,
                                         const NsaSelectedOptions& options = {});

}  // namespace tegula::ops
TEGULA_API_END

// Native sparse attention (Yuan et al., 2025) in one call: compression, selection, window and gates.
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct NativeSparseOptions {
  Layout layout = Layout::bshd;
  int length = 32, stride = 16;                     // of the compressed entries, as in nsa_compress
  int block_size = 64;                              // tokens of a selectable block
  std::int64_t count = 16;                          // blocks that each token selects
  std::int64_t first_blocks = 1, local_blocks = 2;  // always selected, as in nsa_select
  std::int64_t window = 512;                        // tokens, ending with the query's own; 0: none
  std::optional<float> scale = {};                  // scale of the scores; default 1/√d
  // Compressed keys and values computed by the caller, both or neither; default: means.
  std::optional<TensorRef> compressed_k = {}, compressed_v = {};
  std::optional<TensorRef> cu_seqlens = {};  // packed sequences, as in nsa_compress
  std::int64_t max_seqlen = 0;
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};

// nsa_combine of nsa_compressed_attention and of nsa_selected_attention over the blocks selected by
// nsa_select, with its window. q [batch, tokens, heads, d], k [batch, keys, kv_heads, d], v [batch, keys,
// kv_heads, d_v]; gates [batch, tokens, heads, 3], or 2 without a window, in the order of the layout. The
// last query is aligned with the last key. The result has the shape of q with the features of v. Errors are
// those of the operators.
Tensor native_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                               const TensorRef& gates, const NativeSparseOptions& options = {});

}  // namespace tegula::ops
TEGULA_API_END

// Native sparse attention (Yuan et al., 2025) of tokens that are decoded: all branches beside a cache.
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct NsaDecode {
  TensorRef q = {}, k = {}, v = {}, compressed_k = {}, compressed_v = {}, gates = {};
  Layout layout = Layout::bshd;
  int length = 32, stride = 16;                     // of the compressed entries, as in nsa_compress
  int block_size = 64;                              // tokens of a selectable block
  std::int64_t count = 16;                          // blocks that a token selects, at most 4096
  std::int64_t first_blocks = 1, local_blocks = 2;  // always selected, as in nsa_select
  std::int64_t window = 512;                        // tokens, ending with the query's own; 0: none
  std::optional<float> scale = {};                  // scale of the scores; default 1/√d
  std::optional<TensorRef> out = {};                // preallocated output
  Target target = Target::automatic();
};

// The result of native_sparse_attention for few tokens, the last of many: q [batch, queries, heads, d] with
// at most 16 queries and 64 heads of a group, keys and values of all tokens so far, the compressed entries of
// those that nsa_compress returns for them, and gates [batch, queries, heads, 3], or 2 without a window.
// Every compressed key is read once: its scores give the compressed branch and, once all are known, the
// selection. Throws an ArgumentError for wrong shapes, dtypes or options.
Tensor nsa_decode(const TensorRef& q, const TensorRef& k, const TensorRef& v, const TensorRef& compressed_k,
                  const TensorRef& compressed_v, const TensorRef& gates, NsaDecode options = {});

}  // namespace tegula::ops
TEGULA_API_END

// Multi-head latent attention of the latest tokens of each sequence to a cache of latents.
#pragma once
#include <cstdint>
#include <optional>

#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct MlaDecode {
  TensorRef q = {};  // [batch, queries, heads, d]: absorbed queries of the last tokens, typically 1 to 8
  // [batch, keys, d] or, with a block table, pages [pages, page size, d]: rows shared by all heads. A row is
  // a key, and its first d_v features are the value. In the dtype of q, or e4m3. With u8, rows are records of
  // 656 bytes (d = 576: 512 e4m3, 4 f32 factors for 128 of these each, 64 bf16) or of 584 bytes (d = 512: a
  // page has the 448 e4m3 and 64 bf16 of each token, then 8 bytes per token with exponents of 2 for 64
  // features each); then q is bf16, and pages or sequences are contiguous.
  TensorRef kv_cache = {};
  std::optional<TensorRef> block_table = {};    // as in attention_with_kv_cache
  std::optional<TensorRef> cache_seqlens = {};  // likewise
  // Positive f32 factors of rows: [batch, keys] or, for pages, [pages, page size]; every extent may be 1.
  std::optional<TensorRef> kv_scale = {};
  std::optional<TensorRef> tree_mask = {};  // as in attention_with_kv_cache
  std::optional<TensorRef> sinks = {};      // [heads], likewise
  std::int64_t d_v = 512;                   // features of a row that are values
  std::optional<float> scale = {};          // scale of the scores; default 1/√d
  bool causal = false;                      // these four as in attention_with_kv_cache
  std::int64_t left = -1;
  float softcap = 0;
  int splits = 0;
  std::optional<TensorRef> out = {}, lse = {};  // preallocated outputs
  Target target = Target::automatic();
};

// softmax(scale · q kᵀ) v over the rows k of the cache and their values v, which all heads share: out [batch,
// queries, heads, d_v], lse f32 [batch, heads, queries]. A query that sees no row has output 0 and lse −∞. A
// length beyond the cache is a ProgramError, wrong shapes, dtypes or options are an ArgumentError.
AttentionResult mla_decode(const TensorRef& q, const TensorRef& kv_cache, MlaDecode options = {});

}  // namespace tegula::ops
TEGULA_API_END

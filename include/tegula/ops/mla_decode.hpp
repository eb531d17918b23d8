// Multi-head latent attention of the newest tokens of sequences to a cache of latents.
#pragma once
#include <cstdint>
#include <optional>

#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct MlaDecode {
  TensorRef q = {};  // [batch, queries, heads, d]: absorbed queries of the last tokens, most often 1 to 8
  // [batch, keys, d], or with a block table pages [pages, page size, d]: rows that all heads share, which are
  // keys, and whose first d_v features are values. In the dtype of q, or e4m3. u8: records of 656 bytes (d =
  // 576: 512 e4m3, 4 f32 factors of 128 of them each, 64 bf16), or of 584 (d = 512: in each page the 448 e4m3
  // and 64 bf16 of its tokens, behind all of them 8 bytes a token, exponents of 2 for 64 features each); q is
  // bf16 then, and pages, or sequences, are contiguous.
  TensorRef kv_cache = {};
  std::optional<TensorRef> block_table = {};    // as of attention_with_kv_cache
  std::optional<TensorRef> cache_seqlens = {};  // likewise
  // f32 positive factors of rows: [batch, keys], of pages [pages, page size], where every extent may be 1.
  std::optional<TensorRef> kv_scale = {};
  std::optional<TensorRef> tree_mask = {};  // as of attention_with_kv_cache
  std::optional<TensorRef> sinks = {};      // [heads]
  std::int64_t d_v = 512;                   // features of a row that are values
  std::optional<float> scale = {};          // of the scores; 1/√d unless given
  bool causal = false;
  std::int64_t left = -1;
  float softcap = 0;
  int splits = 0;
  std::optional<TensorRef> out = {}, lse = {};  // written instead of new tensors
  Target target = Target::automatic();
};

// out [batch, queries, heads, d_v], lse f32 [batch, heads, queries].
AttentionResult mla_decode(const TensorRef& q, const TensorRef& kv_cache, MlaDecode options = {});

}  // namespace tegula::ops
TEGULA_API_END

// The lightning indexer against a cache of keys.
#pragma once
#include "tegula/ops/indexer.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct PagedIndexerLogits {
  TensorRef q = {};        // [batch, queries, heads, d]: the last tokens of each sequence
  TensorRef k_cache = {};  // [batch, keys, d], or with a block table pages, [pages, page size, d]
  TensorRef weights = {};  // [batch, queries, heads], f32, f16 or bf16
  // [batch, table width] i32 and [batch] i32, as attention_with_kv_cache has them.
  std::optional<TensorRef> block_table = {}, cache_seqlens = {};
  std::optional<TensorRef> k_scales = {};  // f32, a factor for each token of the cache, as k_cache without d
  // No later keys: the last query stands at the last key of its sequence.
  bool causal = true;
  std::optional<TensorRef> logits = {};  // written instead of a new tensor
  Target target = Target::automatic();
};

// indexer_logits for the keys of a cache, by their places in their sequences: f32 [batch, queries, room], −∞
// where the query does not see the key and where there is none.
Tensor paged_indexer_logits(const TensorRef& q, const TensorRef& k_cache, const TensorRef& weights,
                            PagedIndexerLogits options = {});

}  // namespace tegula::ops
TEGULA_API_END

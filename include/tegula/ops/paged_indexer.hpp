// The lightning indexer against a cache of keys.
#pragma once
#include "tegula/ops/indexer.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct PagedIndexerLogits {
  TensorRef q = {};        // [batch, queries, heads, d]: the last tokens of each sequence
  TensorRef k_cache = {};  // [batch, keys, d], or pages [pages, page size, d] with a block table
  TensorRef weights = {};  // [batch, queries, heads], f32, f16 or bf16
  // [batch, table width] i32 and [batch] i32, as in attention_with_kv_cache.
  std::optional<TensorRef> block_table = {}, cache_seqlens = {};
  std::optional<TensorRef> k_scales = {};  // f32, one factor per token of the cache, as k_cache without d
  // Hide later keys; the last query is aligned with the last key of its sequence.
  bool causal = true;
  std::optional<TensorRef> logits = {};  // preallocated output
  Target target = Target::automatic();
};

// indexer_logits for the keys of a cache, indexed by position in the sequence: f32 [batch, queries,
// capacity], −∞ where the query does not see the key or there is no key.
Tensor paged_indexer_logits(const TensorRef& q, const TensorRef& k_cache, const TensorRef& weights,
                            PagedIndexerLogits options = {});

}  // namespace tegula::ops
TEGULA_API_END

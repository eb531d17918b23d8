// Attention of the latest tokens of each sequence to a cache of keys and values.
#pragma once
#include <cstdint>
#include <optional>

#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct AttentionWithKvCache {
  TensorRef q = {};  // [batch, queries, heads, d]: the last tokens of each sequence, typically 1 to 16
  // [batch, keys, kv heads, d] and [batch, keys, kv heads, d_v] or, with a block table, pages: [pages, page
  // size, kv heads, …]. In the dtype of q, or e4m3.
  TensorRef k_cache = {}, v_cache = {};
  // [batch, table width] i32: key t of a sequence is row t % page size of the page in entry t / page size.
  // Entries that are no page number, such as −1, are padding: no query sees their keys. With one entry per
  // sequence and pages as long as the cache, the table selects rows of a contiguous cache.
  std::optional<TensorRef> block_table = {};
  // [batch] i32: number of keys of each sequence, including those of q; default: the capacity of the cache.
  // The tensor is on the device, and the host does not read it.
  std::optional<TensorRef> cache_seqlens = {};
  // f32 factors of keys and values, for a cache of any dtype: [batch, keys, kv heads] or, for pages, [pages,
  // page size, kv heads]. Every extent may be 1: [1, 1, 1] is one factor for the tensor, [1, 1, kv heads] one
  // per head.
  std::optional<TensorRef> k_scale = {}, v_scale = {};
  // [batch, queries, queries] or [1, queries, queries] boolean: which of the last tokens each of them sees,
  // for example in a tree of draft tokens. All of them see all earlier keys. It replaces `causal`.
  std::optional<TensorRef> tree_mask = {};
  // The blocks of keys that a sequence sees, the same for all its queries: `indices`, [batch, kv heads,
  // entries] i32, are numbers of blocks of `k_block_size` keys, of which the first `counts` [batch, kv heads]
  // are used (default: all). Numbers of no block, such as −1, are ignored, and duplicates count once.
  // Alternatively `mask`, [batch, kv heads, blocks] boolean. The head dimension may be 1. Blocks are counted
  // within the sequence, wherever its pages are.
  std::optional<TensorRef> indices = {}, counts = {}, mask = {};
  int k_block_size = 64;
  std::optional<TensorRef> sinks =
      {};                           // [heads]: one logit per head that is added to the sum but has no value
  std::optional<float> scale = {};  // scale of the scores; default 1/√d
  // The last query is aligned with the last key. Causal queries see no later keys; `left` is how many keys
  // before its position a query sees, −1: all.
  bool causal = false;
  std::int64_t left = -1;
  float softcap = 0;  // scores become c · tanh(score / c); 0: off
  // The keys of a sequence are split into so many ranges, at most 64; 0 leaves the number to the plan. If
  // given, each sequence is split by its own length, so its result does not depend on the rest of the batch.
  int splits = 0;
  std::optional<TensorRef> out = {}, lse = {};  // preallocated outputs
  Target target = Target::automatic();
};

// softmax(scale · q kᵀ) v over the keys of the cache, as `attention` is over tensors: out [batch, queries,
// heads, d_v] and lse f32 [batch, heads, queries]. A query that sees no key has output 0 and lse −∞. A length
// beyond the cache is a ProgramError.
AttentionResult attention_with_kv_cache(const TensorRef& q, const TensorRef& k_cache,
                                        const TensorRef& v_cache, AttentionWithKvCache options = {});

}  // namespace tegula::ops
TEGULA_API_END

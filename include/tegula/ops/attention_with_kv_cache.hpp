// Attention of the newest tokens of sequences to a cache of keys and values.
#pragma once
#include <cstdint>
#include <optional>

#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct AttentionWithKvCache {
  TensorRef q = {};  // [batch, queries, heads, d]: the last tokens of each sequence, most often 1 to 16
  // [batch, keys, kv heads, d] and [batch, keys, kv heads, d_v]; with a block table pages of them, [pages,
  // page size, kv heads, …]. In the dtype of q, or e4m3.
  TensorRef k_cache = {}, v_cache = {};
  // [batch, table width] i32: key t of a sequence is row t % page size of the page at t / page size. Entries
  // that name no page, such as −1, are padding: no query sees their keys. With one entry per sequence and
  // pages as long as the cache it chooses rows of a contiguous cache.
  std::optional<TensorRef> block_table = {};
  // [batch] i32: how many keys each sequence has, those of q included; without, all that there is room for.
  // It lies on the device and is not read by the call.
  std::optional<TensorRef> cache_seqlens = {};
  // f32 factors of keys and values, of an e4m3 cache or any: [batch, keys, kv heads], of pages [pages, page
  // size, kv heads], where every extent may be 1: [1, 1, 1] is one for the tensor, [1, 1, kv heads] one for
  // each head.
  std::optional<TensorRef> k_scale = {}, v_scale = {};
  // [batch, queries, queries] or [1, queries, queries] boolean: which of the last tokens each of them sees,
  // as of a tree of drafts; all see what is before them. It replaces `causal`.
  std::optional<TensorRef> tree_mask = {};
  // Blocks of keys that a sequence sees, one choice for all its queries: [batch, kv heads, entries] i32
  // numbers of blocks of `k_block_size` keys, of which `counts` [batch, kv heads] count, all unless given.
  // Others than those of blocks, such as −1, are none, and one that is repeated counts once. Or `mask`
  // [batch, kv heads, blocks] boolean. The extent of heads may be 1. Blocks are those of the sequence,
  // wherever its pages lie.
  std::optional<TensorRef> indices = {}, counts = {}, mask = {};
  int k_block_size = 64;
  std::optional<TensorRef> sinks = {};  // [heads]: a logit of each head that counts but has no value
  std::optional<float> scale = {};      // of the scores; 1/√d unless given
  // The last query stands at the last key. Causal queries see no later keys; `left` is how many they see
  // before their position, −1 for all.
  bool causal = false;
  std::int64_t left = -1;
  float softcap = 0;  // scores become c · tanh(score / c); 0 for none
  // Parts into which the keys of a sequence are divided, at most 64; 0 leaves it to the plan. With a number
  // given, each sequence is divided by its own length, so that its bits do not depend on the batch.
  int splits = 0;
  std::optional<TensorRef> out = {}, lse = {};  // written instead of new tensors
  Target target = Target::automatic();
};

// softmax(scale · q kᵀ) v over the keys of the cache, as `attention` is over tensors: out [batch, queries,
// heads, d_v] and lse f32 [batch, heads, queries]. A query that sees no key has output 0 and lse −∞. A length
// beyond the cache is a ProgramError.
AttentionResult attention_with_kv_cache(const TensorRef& q, const TensorRef& k_cache,
                                        const TensorRef& v_cache, AttentionWithKvCache options = {});

}  // namespace tegula::ops
TEGULA_API_END

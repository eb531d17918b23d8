// New tokens for a cache of keys and values.
#pragma once
#include "tegula/ops/rope.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct AppendKv {
  TensorRef k = {};  // [batch, tokens, kv heads, d], f32, f16 or bf16: the newest tokens of each sequence
  // Written in place: [batch, keys, kv heads, d], or with a block table pages, [pages, page size, kv heads,
  // d]. In the dtype of k, or e4m3.
  TensorRef k_cache = {};
  // The values likewise, [.., d_v]; both or neither, as of a cache of latents, which are keys and values.
  std::optional<TensorRef> v = {}, v_cache = {};
  // [batch, table width] i32, as attention_with_kv_cache has it: token t of a sequence becomes row t % page
  // size of the page at t / page size. Tokens whose entry is negative are not stored; one that names a page
  // that is not there is an error of the call.
  std::optional<TensorRef> block_table = {};
  // [batch] i32: tokens of each sequence, the new ones included, so that the same tensor serves attention:
  // new token i of n is token length − n + i. Those before the first token are not stored. Without lengths
  // sequences fill the cache.
  std::optional<TensorRef> cache_seqlens = {};
  // f32 factors by which keys and values are divided before they are stored, shaped as those of
  // attention_with_kv_cache: one, one for each head, or for each token and head.
  std::optional<TensorRef> k_scale = {}, v_scale = {};
  // Written in place instead: f32 factors of each token and head of the cache, the largest magnitude of its
  // features over 448.
  std::optional<TensorRef> k_token_scale = {}, v_token_scale = {};
  // Rotary position embedding of keys: tables as those of rope, by the token's place in its sequence, or by
  // `positions` [batch, tokens] i32. Features from `first_rotated` on are rotated.
  std::optional<TensorRef> cosine = {}, sine = {}, positions = {};
  RopePairing pairing = RopePairing::halves;
  std::int64_t first_rotated = 0;
  Target target = Target::automatic();
};

// Stores the tokens and changes nothing else. A length beyond the cache, a page that is not there and a
// position without angles are a ProgramError, and nothing outside of the cache is written.
void append_kv(const TensorRef& k, const TensorRef& k_cache, AppendKv options = {});

}  // namespace tegula::ops
TEGULA_API_END

// Appends new tokens to a cache of keys and values.
#pragma once
#include "tegula/ops/rope.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct AppendKv {
  TensorRef k = {};  // [batch, tokens, kv heads, d], f32, f16 or bf16: the newest tokens of each sequence
  // The cache of keys, updated in place: [batch, keys, kv heads, d] or, with a block table, pages: [pages,
  // page size, kv heads, d]. In the dtype of k, or e4m3.
  TensorRef k_cache = {};
  // Values and their cache, [.., d_v]; both or neither. A cache of latents, which are keys and values at
  // once, has neither.
  std::optional<TensorRef> v = {}, v_cache = {};
  // [batch, table width] i32, as in attention_with_kv_cache: token t of a sequence is stored in row t % page
  // size of the page in entry t / page size. Tokens with a negative entry are not stored; an entry beyond the
  // last page is a ProgramError.
  std::optional<TensorRef> block_table = {};
  // [batch] i32: tokens of each sequence including the new ones, so the same tensor can be passed to
  // attention: new token i of n is token length − n + i. Of a sequence of length 0, which is not there,
  // nothing is stored; another length below n is a ProgramError. Without lengths, sequences fill the cache.
  std::optional<TensorRef> cache_seqlens = {};
  // f32 factors by which keys and values are divided before they are stored, in the shapes that
  // attention_with_kv_cache accepts: one, one per head, or one per token and head.
  std::optional<TensorRef> k_scale = {}, v_scale = {};
  // Alternatively, outputs: f32 factors per token and head of the cache, the largest magnitude of the
  // features divided by 448.
  std::optional<TensorRef> k_token_scale = {}, v_token_scale = {};
  // Rotary position embedding of keys: tables as in rope, indexed by the token's position in its sequence, or
  // by `positions`, [batch, tokens] i32. The rotated features start at `first_rotated`.
  std::optional<TensorRef> cosine = {}, sine = {}, positions = {};
  RopePairing pairing = RopePairing::halves;
  std::int64_t first_rotated = 0;
  Target target = Target::automatic();
};

// Stores the tokens and changes nothing else. A length beyond the cache or below the number of new tokens, a
// page that does not exist and a position beyond the tables are ProgramErrors; nothing outside the cache is
// written.
void append_kv(const TensorRef& k, const TensorRef& k_cache, AppendKv options = {});

}  // namespace tegula::ops
TEGULA_API_END

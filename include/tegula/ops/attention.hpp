// Softmax attention over all keys, or over a window of them.
#pragma once
#include <cstdint>
#include <optional>

#include "tegula/ops/heads.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct AttentionOptions {
  Layout layout = Layout::bshd;
  std::optional<float> scale = {};  // scale of the scores, positive and finite; default 1/√d
  // Query i is at position i + (keys − queries), so the last query is aligned with the last key. It sees the
  // keys from `left` before its position to `right` after it; −1: all of them. `causal` means right = 0,
  // whatever `right` says. Scaled scores are f32; beyond ±2^27 the largest score of a row gets all the
  // weight.
  bool causal = false;
  std::int64_t left = -1, right = -1;
  float softcap = 0;  // scores become c · tanh(score / c); 0: off
  // [heads of q]: one logit per head that is added to the sum of the softmax but has no value. With ∞ the
  // output is 0 and the lse ∞.
  std::optional<TensorRef> sinks = {};
  // Packed sequences: q, k, v are [tokens, heads, d], and sequence b consists of tokens cu_seqlens[b] to
  // cu_seqlens[b + 1] − 1 (i32 [sequences + 1]).
  std::optional<TensorRef> cu_seqlens_q = {}, cu_seqlens_k = {};
  // The length of the longest sequence, or 0 if unknown. A call does not read cu_seqlens on a GPU; with this
  // promise it launches no blocks past max_seqlen, and heads share tiles if there are few queries. A longer
  // sequence is a ProgramError.
  std::int64_t max_seqlen_q = 0, max_seqlen_k = 0;
  // Positive f32 factors of q, k and v in e4m3: [batch, kv heads] or, for packed sequences, [sequences, kv
  // heads]; either extent may be 1. Heads of q that share a head of k share its factor.
  std::optional<TensorRef> q_scale = {}, k_scale = {}, v_scale = {};
  std::optional<DType> out_dtype = {};  // of the result if q is e4m3 (default: bf16); otherwise that of q
  std::optional<TensorRef> out = {}, lse = {};  // preallocated outputs
  // The keys of a tile of queries are split into so many ranges, at most 64; each is computed by its own
  // block, and the results are merged. 0 leaves the number to the plan: a GPU splits if the tiles alone would
  // leave processors idle, as with one query of a long sequence.
  int splits = 0;
  AttentionTiles tiles = {};
  Target target = Target::automatic();
};

struct AttentionResult {
  Tensor out;  // as q, with the features of v; in out_dtype
  Tensor lse;  // f32, natural logarithm of the sum of exp(score): [batch, heads, queries], packed [heads,
               // tokens]
};

// softmax(scale · q kᵀ) v for every head: q [batch, queries, heads, d], k [batch, keys, kv heads, d], v
// [batch, keys, kv heads, d_v], in the order given by `layout`. All have one dtype, f32, f16, bf16 or e4m3,
// and are on one device. There are at most 576 features of q and k and 512 of v, with stride 1; other strides
// are arbitrary. Scores and sums are f32. heads is a multiple of kv heads; head h of q uses head h / (heads /
// kv heads) of k and v. A query that sees no key has output 0 and lse −∞ (with a sink: lse is the sink).
// Throws an ArgumentError for wrong shapes, dtypes or options.
AttentionResult attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                          const AttentionOptions& options = {});

}  // namespace tegula::ops
TEGULA_API_END

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
  std::optional<float> scale = {};  // of the scores; 1/√d unless given. Positive and finite
  // Query i stands at position i + (keys − queries): the last query at the last key. It sees the keys from
  // `left` before its position to `right` after it, −1 for all of them; causal is right = 0, whatever `right`
  // says. Scores times `scale` are f32: beyond ±2^27 the largest of a row has all the weight.
  bool causal = false;
  std::int64_t left = -1, right = -1;
  float softcap = 0;  // scores become c · tanh(score / c); 0 for none
  // [heads of q]: a logit of each head that counts in the sum but has no value. With ∞ the output is 0 and
  // the lse ∞.
  std::optional<TensorRef> sinks = {};
  // Sequences packed one after another: q, k, v are [tokens, heads, d], and sequence b has the tokens
  // cu_seqlens[b] … cu_seqlens[b + 1] − 1 (i32 [sequences + 1]).
  std::optional<TensorRef> cu_seqlens_q = {}, cu_seqlens_k = {};
  // The length of the longest sequence, or 0 if it is not known. A call does not read cu_seqlens on a GPU;
  // with this promise it launches no blocks past max_seqlen, and heads share tiles where queries are few. A
  // longer sequence is a ProgramError.
  std::int64_t max_seqlen_q = 0, max_seqlen_k = 0;
  // f32 factors of q, k and v in e4m3, positive: [batch, kv heads], of packed sequences [sequences, kv
  // heads], where either extent may be 1. Heads of q that share a head of k share its factor.
  std::optional<TensorRef> q_scale = {}, k_scale = {}, v_scale = {};
  std::optional<DType> out_dtype = {};          // of the result of e4m3: bf16 unless given; else that of q
  std::optional<TensorRef> out = {}, lse = {};  // written instead of new tensors
  // Into how many parts, at most 64, the keys of a tile of queries are divided; each is computed by a block,
  // and they are merged. 1 divides nothing. 0 leaves it to the plan: a GPU divides where the tiles alone
  // would leave processors idle, as with one query of a long sequence.
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
// [batch, keys, kv heads, d_v] in the order that `layout` says. All are of one dtype, f32, f16, bf16 or e4m3,
// on one device; features, at most 512, lie side by side; other strides are free. Scores and sums are f32.
// heads is a multiple of kv heads; head h of q uses head h / (heads / kv heads) of k and v. A query that sees
// no key has output 0 and lse −∞ (with a sink: lse is the sink). Wrong shapes, dtypes or options are an
// ArgumentError.
AttentionResult attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                          const AttentionOptions& options = {});

}  // namespace tegula::ops
TEGULA_API_END

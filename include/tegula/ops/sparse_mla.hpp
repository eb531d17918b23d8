// Attention of many query heads to listed rows, which are both keys and values, as in multi-head latent
// attention (DeepSeek sparse attention, DeepSeek-AI 2025).
#pragma once
#include <cstdint>
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct SparseMlaOptions {
  std::int64_t d_v = 512;           // the first d_v features of a row are its value
  std::optional<float> scale = {};  // scale of the scores, positive and finite; default 1/√d
  // Query i is at position i + (keys − queries), and entries for later rows are ignored.
  bool causal = false;
  // i32 [batch, queries, kv_heads]: the number of entries of a list that are used; default: all.
  std::optional<TensorRef> counts = {};
  // [heads]: one logit per head that is added to the sum of the softmax but has no value. With ∞ the output
  // is 0 and the lse ∞.
  std::optional<TensorRef> sinks = {};
  // A second source of rows, [batch, more_keys, kv_heads, d], and the lists that select from it, [batch,
  // queries, kv_heads, more_entries]; for example a window in addition to compressed rows. Both sources share
  // one softmax. Not with `causal`.
  std::optional<TensorRef> more_kv = {}, more_indices = {};
  std::optional<TensorRef> out = {}, lse = {};  // preallocated outputs
  // Each list is divided into so many splits, at most 32, which are computed by separate blocks and then
  // merged; 0 leaves the number to the plan.
  int splits = 0;
  Target target = Target::automatic();
};

struct SparseMlaResult {
  Tensor out;  // as q, with d_v features
  Tensor lse;  // f32 [batch, queries, heads], natural logarithm of the sum of exp(score)
};

// For every query, softmax(scale · q kᵀ) v over the rows k in its list, where v is the first d_v features of
// k: q [batch, queries, heads, d], kv [batch, keys, kv_heads, d] of one dtype, f32, f16 or bf16; indices i32
// [batch, queries, kv_heads, entries]. All tensors may lack the batch dimension. heads is a multiple of
// kv_heads, and head h uses list h / (heads / kv_heads). Entries that are no row number, such as −1, are
// padding; a row counts as often as it is listed. A query that sees no row has output 0 and lse −∞ (with a
// sink: lse is the sink). d is at most 576 and d_v at most 512. Throws an ArgumentError for wrong shapes,
// dtypes or options.
SparseMlaResult sparse_mla(const TensorRef& q, const TensorRef& kv, const TensorRef& indices,
                           const SparseMlaOptions& options = {});

struct SparseMlaBackwardOptions {
  std::optional<TensorRef> dlse = {};  // gradient of lse, f32 and of the same shape; ignored where lse is −∞
  std::optional<TensorRef> dq = {}, dkv = {}, dsinks = {}, dmore_kv = {};  // preallocated outputs
};

struct SparseMlaGradients {
  Tensor dq, dkv;           // as q and kv
  Tensor dsinks, dmore_kv;  // f32 [heads], and as more_kv; no elements if the call has none
};

// The gradients of sum(dout · out) + sum(dlse · lse) with respect to q, kv, the sinks and more_kv, where out
// and lse are the results of sparse_mla(q, kv, indices, options). Bitwise reproducible. Contributions to rows
// are stored in at most 2 GiB of memory, whatever the extents.
SparseMlaGradients sparse_mla_backward(const TensorRef& dout, const TensorRef& q, const TensorRef& kv,
                                       const TensorRef& indices, const TensorRef& out, const TensorRef& lse,
                                       const SparseMlaOptions& options,
                                       const SparseMlaBackwardOptions& gradients = {});

struct SparseMlaTarget {
  TensorRef q = {}, kv = {}, indices = {};  // as in sparse_mla
  TensorRef lse = {};                       // its result
  bool causal = false;                      // as in sparse_mla
  std::optional<float> scale = {};          // as in sparse_mla
  std::optional<TensorRef> out = {};        // written instead of a new tensor
  Target target = Target::automatic();
};

// The weights exp(score − lse) of the listed rows in sparse_mla, averaged over the heads of a group: f32
// [batch, queries, kv_heads, entries], 0 for padding. This is the target of the indexer's loss.
Tensor sparse_mla_target(const TensorRef& q, const TensorRef& kv, const TensorRef& indices,
                         const TensorRef& lse, SparseMlaTarget options = {});

struct SparseMlaDecode {
  TensorRef q = {}, values = {}, scales = {}, indices = {};  // as below
  std::optional<TensorRef> ropes =
      {};  // [pages, page, d_rope]: the features of keys after their values, in the dtype of q
  bool ropes_are_values = false;    // the features of ropes are values, too
  std::optional<float> scale = {};  // scale of the scores, positive and finite; default 1/√d
  std::optional<TensorRef> counts =
      {};  // i32 [queries]: the number of entries of a list that are used; default: all
  std::optional<TensorRef> sinks = {};          // [heads], as in sparse_mla
  std::optional<TensorRef> out = {}, lse = {};  // preallocated outputs
  int splits = 0;                               // as in sparse_mla
  Target target = Target::automatic();
};

// The same from a cache of records: e4m3 values [pages, page, in_8_bits] (or any leading extents), divided
// into equal parts that each have a factor in the scales [pages, page, parts], f32 or u8 (exponents of 2,
// plus 127), and ropes. They may be views of one tensor of bytes, such as the 656-byte records of
// DeepSeek-V3.2 (512 values, 4 scales, 64 features in bf16) or the 584-byte records of DeepSeek-V4, whose
// ropes are values, too; docs/decode.md has the bytes of both. q [queries, heads, in_8_bits + d_rope] f32,
// f16 or bf16; indices i32 [queries, entries] are numbers of records, counted across all pages. All heads
// share the records. out [queries, heads, in_8_bits, with ropes_are_values + d_rope], lse f32 [queries,
// heads].
SparseMlaResult sparse_mla_decode(const TensorRef& q, const TensorRef& values, const TensorRef& scales,
                                  const TensorRef& indices, SparseMlaDecode options = {});

}  // namespace tegula::ops
TEGULA_API_END

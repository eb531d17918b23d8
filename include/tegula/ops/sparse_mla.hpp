// Attention of many query heads to the rows that a list names: the keys of multi-head latent attention, which
// are values as well (DeepSeek sparse attention, DeepSeek-AI 2025).
#pragma once
#include <cstdint>
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct SparseMlaOptions {
  std::int64_t d_v = 512;           // features of a row that are its value: the first ones
  std::optional<float> scale = {};  // of the scores; 1/√d unless given. Positive and finite
  // Query i stands at position i + (keys − queries), and entries that name a later row count for nothing.
  bool causal = false;
  // i32 [batch, queries, kv_heads]: how many entries of a list count, all of them unless given.
  std::optional<TensorRef> counts = {};
  // [heads]: a logit of each head that counts in the sum but has no value. With ∞ the output is 0 and the lse
  // ∞.
  std::optional<TensorRef> sinks = {};
  // Rows of a second source [batch, more_keys, kv_heads, d] and the lists [batch, queries, kv_heads,
  // more_entries] that name them: a window beside compressed rows, say. Both sources share one softmax.
  // Without `causal`.
  std::optional<TensorRef> more_kv = {}, more_indices = {};
  std::optional<TensorRef> out = {}, lse = {};  // written instead of new tensors
  // Parts into which each list is divided, computed by blocks of their own and merged afterwards, at most 32;
  // 0 leaves it to the plan.
  int splits = 0;
  Target target = Target::automatic();
};

struct SparseMlaResult {
  Tensor out;  // as q, with d_v features
  Tensor lse;  // f32 [batch, queries, heads], natural logarithm of the sum of exp(score)
};

// For every query, softmax(scale · q kᵀ) v over the rows k that its list names, where v are the first d_v
// features of k: q [batch, queries, heads, d], kv [batch, keys, kv_heads, d] of one dtype, f32, f16 or bf16;
// indices i32 [batch, queries, kv_heads, entries]. All without batch is a batch of 1. Heads are a multiple of
// kv_heads, and head h has the list h / (heads / kv_heads). Entries that name no row, such as −1, are
// padding; a row counts as often as it is named. A query that sees no row has output 0 and lse −∞ (with a
// sink: lse is the sink). d is at most 576 and d_v at most 512. Wrong shapes, dtypes or options are an
// ArgumentError.
SparseMlaResult sparse_mla(const TensorRef& q, const TensorRef& kv, const TensorRef& indices,
                           const SparseMlaOptions& options = {});

struct SparseMlaBackwardOptions {
  std::optional<TensorRef> dlse = {};  // gradient of lse, f32 in its shape; not looked at where lse is −∞
  std::optional<TensorRef> dq = {}, dkv = {}, dsinks = {}, dmore_kv = {};  // written instead of new tensors
};

struct SparseMlaGradients {
  Tensor dq, dkv;           // as q and kv
  Tensor dsinks, dmore_kv;  // f32 [heads], and as more_kv; no elements where the call has none
};

// The gradients of sum(dout · out) + sum(dlse · lse) with respect to q, kv, the sinks and more_kv, where out
// and lse are the results of sparse_mla(q, kv, indices, options): equal bits in every run. Contributions to
// rows pass through memory of at most 2 GiB, whatever the extents are.
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

// The weights exp(score − lse) that sparse_mla gives to the rows of its lists, as the mean over the heads of
// a group: f32 [batch, queries, kv_heads, entries], 0 of padding. The target of the indexer's loss.
Tensor sparse_mla_target(const TensorRef& q, const TensorRef& kv, const TensorRef& indices,
                         const TensorRef& lse, SparseMlaTarget options = {});

struct SparseMlaDecode {
  TensorRef q = {}, values = {}, scales = {}, indices = {};  // as below
  std::optional<TensorRef> ropes =
      {};                           // [pages, page, d_rope]: the features of keys behind their values, as q
  std::optional<float> scale = {};  // of the scores; 1/√d unless given. Positive and finite
  std::optional<TensorRef> counts =
      {};  // i32 [queries]: how many entries of a list count, all of them unless given
  std::optional<TensorRef> sinks = {};          // [heads], as in sparse_mla
  std::optional<TensorRef> out = {}, lse = {};  // written instead of new tensors
  int splits = 0;                               // as in sparse_mla
  Target target = Target::automatic();
};

// The same from a cache of records: values e4m3 [pages, page, d_v] (or any leading extents), each equal part
// of which has a factor in scales f32 [pages, page, parts], and ropes. They may be views of one tensor of
// bytes, such as the 656 of DeepSeek-V3.2: 512 values, 4 scales, 64 features in bf16. q [queries, heads, d_v
// + d_rope] f32, f16 or bf16; indices i32 [queries, entries] count the records of all pages. All heads share
// the records. out [queries, heads, d_v], lse f32 [queries, heads].
SparseMlaResult sparse_mla_decode(const TensorRef& q, const TensorRef& values, const TensorRef& scales,
                                  const TensorRef& indices, SparseMlaDecode options = {});

}  // namespace tegula::ops
TEGULA_API_END

// Merges results of attention over subsets of the keys.
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// Attention over a subset of the keys has its own softmax. The results of all subsets, with their lse,
// determine the result over all keys. The subsets may be chunks of a long cache, a shared prefix and its
// continuation, or keys on several devices.
struct MergeAttention {
  TensorRef outs = {};  // [parts, batch, queries, heads, d], or in the order of `layout`; batch is optional
  TensorRef lses = {};  // f32 [parts, batch, heads, queries], natural logarithms
  // [heads]: one logit per head that is added to the sum of the softmax but has no value; only if no part
  // includes it already.
  std::optional<TensorRef> sinks = {};
  Layout layout = Layout::bshd;
  std::optional<DType> out_dtype = {};          // default: that of outs
  std::optional<TensorRef> out = {}, lse = {};  // preallocated outputs
  Target target = Target::automatic();
};

// out = sum of exp(lses − lse) · outs, with lse = log of the sum of exp(lses). A part with lse −∞ contributes
// nothing, whatever its out contains; if all have lse −∞, out is 0 and lse −∞.
AttentionResult merge_attention(const TensorRef& outs, const TensorRef& lses, MergeAttention options = {});

}  // namespace tegula::ops
TEGULA_API_END

// Merges results of attention over parts of the keys.
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// Attention over parts of the keys gives each part a softmax of its own; their results with their lse are all
// that the result over all keys needs: of the chunks of a long cache, of a shared prefix and what follows it,
// of keys that lie on several devices.
struct MergeAttention {
  TensorRef outs =
      {};  // [parts, batch, queries, heads, d], or in the order of `layout`; batch may be missing
  TensorRef lses = {};  // f32 [parts, batch, heads, queries], natural logarithms
  // [heads]: a logit of each head that counts in the sum but has no value, where no part has it yet.
  std::optional<TensorRef> sinks = {};
  Layout layout = Layout::bshd;
  std::optional<DType> out_dtype = {};          // that of outs unless given
  std::optional<TensorRef> out = {}, lse = {};  // written instead of new tensors
  Target target = Target::automatic();
};

// out = sum of exp(lses − lse) · outs, with lse = log of the sum of exp(lses). A part with the lse −∞ counts
// for nothing, whatever its out holds; where all do, out is 0 and lse −∞.
AttentionResult merge_attention(const TensorRef& outs, const TensorRef& lses, MergeAttention options = {});

}  // namespace tegula::ops
TEGULA_API_END

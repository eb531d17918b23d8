// The tile programs of the gradients of attention to listed rows, for some queries of a batch at a time.
//
// What a pair of a query and an entry of its list adds to its row is written down, and a table says for every
// row which pairs name it: `marks` [kv heads, keys, tokens] has, for each query, which entry names the row
// first. Entries that name it again are dropped, and the first counts for all of them. Each row then adds its
// pairs in the order of queries, so that sums are the same in every run.
//
// Few queries leave processors idle: their lists are divided among blocks, whose gradients of queries are
// then added in order, and rows, of which hardly any has a pair, are summed many at a time.
#pragma once
#include "ops/latent/sparse_mla_kernel.hpp"

namespace tegula::ops {

// Of the row of a pair: threads of a product have their order.
constexpr int exchanged_features = 32;
constexpr int few_queries = 4;

struct SparseMlaBackwardKernel {
  SparseMlaKernel forward = {};
  int tokens = 256;  // queries at a time, at most
  int blocks = 1;    // of `rows` heads, of a group
  int splits = 1;    // of a list
  bool few = false;  // queries, at most `few_queries`
  bool dlse = false;
  bool adds = false;       // dq has the gradients of another source already
  bool exchanged = false;  // the features of pairs are in the order in which threads of products have them

  auto fields() const {
    return std::tuple(forward, labelled("tokens", tokens), labelled("blocks", blocks),
                      labelled("splits", splits > 1 ? std::optional(splits) : std::nullopt),
                      labelled("few", few), labelled("dlse", dlse), labelled("adds", adds),
                      labelled("exchanged", exchanged));
  }
};

// The program for one batch entry. Arguments: the values and the remaining features of q [queries, kv heads,
// group, …] and of kv [keys, kv heads, …] as in the forward, indices [queries, kv heads, entries], dout and
// out [queries, kv heads, group, d_v], lse, delta [queries, kv heads, group] (delta is written), dq, the sums
// for kv in f32 [keys, kv heads, d], dkv of that shape, scale (with log2(e)), is_first (the sums have nothing
// yet), is_last (the sums go to dkv); then, where the instance has them, offset, counts, dlse.
lang::Kernel sparse_mla_backward_kernel(const SparseMlaBackwardKernel& instance);

struct SinkGradientKernel {
  DType type = f32;
  auto fields() const { return std::tuple(type); }
};
// Arguments: lse and delta [batch, queries, kv heads, group], sinks and dsinks [kv heads, group].
lang::Kernel sink_gradient_kernel(const SinkGradientKernel& instance);

}  // namespace tegula::ops

// What comes before and behind the products of the gradients of attention to listed rows: lists in which a
// row stands once, and the sums of what pairs of queries and rows add.
#pragma once
#include "ops/latent/sparse_mla_backward_kernel.hpp"

namespace tegula::ops {

// Where a feature is in the row of a pair, and which feature is there, if features are exchanged: those that
// a thread of a product has, two of every eight, follow one another.
lang::Expr exchanged_place(const lang::Expr& feature);

// Arguments: indices [queries, kv heads, entries], dout and out [queries, kv heads, group, d_v], lse, delta
// and base [queries, kv heads, group], the lists `rows` and how often their rows count, `times` [queries, kv
// heads, padded], marks [kv heads, keys, tokens]; then, where the instance has them, offset, counts, dlse.
lang::Kernel sparse_mla_lists_kernel(const SparseMlaBackwardKernel& instance);

// Arguments: marks, parts [kv heads, pairs, d], the sums in f32 [keys, kv heads, d], dkv of that shape,
// entries, is_first (the sums have nothing yet), is_last (the sums go to dkv).
lang::Kernel sparse_mla_sums_kernel(const SparseMlaBackwardKernel& instance);

}  // namespace tegula::ops

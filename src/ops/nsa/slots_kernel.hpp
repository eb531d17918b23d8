// The gradients of attention over selected blocks on a GPU, by one pass over keys.
#pragma once
#include "ops/nsa/kernel.hpp"
#include "ops/pieces/gradient.hpp"

namespace tegula::ops {

// For blocks of at least 64 keys that all heads of the call's groups select alike.
struct NsaSlotsKernel {
  NsaKernel forward;
  int queries = 1, keys = 64;  // tokens and keys of a tile
  bool dlse = false;
  bool plus = false;  // gradients of something else are added

  GradientTiles tiles() const {
    return {forward.compute, forward.dim, forward.dim_v, forward.pack, queries, keys};
  }
  int parts() const { return (forward.block + keys - 1) / keys; }
  auto fields() const {
    return std::tuple(forward, labelled("slots_q", queries), labelled("k", keys), labelled("dlse", dlse),
                      labelled("plus", plus));
  }
};

// Several calls may share the tokens, one after the other. Grids: delta of the queries; the pairs of tokens
// and blocks, sorted by blocks; sums of dk and dv by tiles of keys, which leave what every pair adds to dq in
// a slot of its own, long lists divided among several tiles, and the sums of these; dq as the sum of a
// token's slots; dk and dv. No two blocks write one element. Arguments: dout as out, then q, k, v, out, lse
// as in nsa_kernel, dq, dk, dv, choice [batch, tokens, kv heads, 1, entries], scale, the number of tokens
// behind those of the call, of packed sequences before them, which are one entry of a batch; then, where the
// instance has them, counts as choice without entries, dlse, what is added to dq, dk and dv; then dk and dv
// as f32 sums, and whether the call is the first and the last; for packed sequences as in
// nsa_backward_kernel, all of them.
lang::Kernel nsa_slots_kernel(const NsaSlotsKernel& instance);

}  // namespace tegula::ops

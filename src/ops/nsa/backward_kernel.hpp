// The tile programs of the gradients of attention over selected blocks.
#pragma once
#include "ops/lists/inverse.hpp"
#include "ops/nsa/kernel.hpp"
#include "ops/pieces/gradient.hpp"

namespace tegula::ops {

struct NsaBackwardKernel {
  NsaKernel forward;            // also the tiles of the pass over queries
  int queries = 64, keys = 64;  // tiles of the pass over keys
  bool per_query_head = false;  // heads of a group select differently
  bool dlse = false;
  bool window = false, window_dlse = false;
  bool dscale = false;
  int chunk = inverse_rows;  // tokens whose entries are counted together

  // Heads that select alike and share no tile are one after the other in a block, where their gradients of a
  // scale meet.
  bool heads_one_by_one() const { return dscale && !per_query_head && forward.pack == 1; }
  GradientTiles query_tiles() const {
    return {forward.compute, forward.dim, forward.dim_v, forward.pack, forward.queries, forward.keys};
  }
  GradientTiles key_tiles() const {
    return {forward.compute, forward.dim, forward.dim_v, forward.pack, queries, keys};
  }
  auto fields() const {
    return std::tuple(forward, labelled("backward_q", queries), labelled("k", keys),
                      labelled("per_head", per_query_head), labelled("dlse", dlse),
                      labelled("window", window), labelled("window_dlse", window_dlse),
                      labelled("dscale", dscale),
                      labelled("c", chunk > inverse_rows ? std::optional(chunk) : std::nullopt));
  }
};

// Grids: delta of the queries; the lists transposed round; dq by tiles of tokens, and dscale with it; dk and
// dv by tiles of keys. No two blocks write one element. Arguments: dout as out, then q, k, v, out, lse as in
// nsa_kernel, dq, dk, dv, choice [batch, tokens, kv heads, group if per_query_head or 1, entries], scale;
// then, where the instance has them, counts as choice without entries, dlse, window_dout, window_out,
// window_lse, the window's left extent, window_dlse, dscale as choice, and for packed sequences q_begin,
// k_begin, longest_q, longest_k.
lang::Kernel nsa_backward_kernel(const NsaBackwardKernel& instance);

// One pass over keys, for GPUs: for blocks of at least 64 keys that all heads of the call's groups select
// alike.
struct NsaOnePassKernel {
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
// and blocks, sorted by blocks; sums of dk and dv by tiles of keys, which leave what every pair adds to dq as
// a partial of its own, long lists divided among several tiles, and the sums of these; dq as the sum of a
// token's partials; dk and dv. No two blocks write one element. Arguments: dout as out, then q, k, v, out,
// lse as in nsa_kernel, dq, dk, dv, choice [batch, tokens, kv heads, 1, entries], scale, the number of tokens
// after those of the call, of packed sequences before them, which are one entry of a batch; then, where the
// instance has them, counts as choice without entries, dlse, what is added to dq, dk and dv; then dk and dv
// as f32 sums, and whether the call is the first and the last; for packed sequences as in
// nsa_backward_kernel, all of them.
lang::Kernel nsa_one_pass_kernel(const NsaOnePassKernel& instance);

}  // namespace tegula::ops

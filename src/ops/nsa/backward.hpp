// The gradients of attention over selected blocks: checked calls, and their tile programs.
#pragma once
#include "ops/lists/inverse.hpp"
#include "ops/nsa/call.hpp"
#include "ops/nsa/kernel.hpp"
#include "ops/pieces/gradient.hpp"
#include "tegula/ops/nsa_selected_attention_backward.hpp"

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
  int tiles_of_block() const { return (forward.block + keys - 1) / keys; }
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

struct NsaSelectedBackward : NsaSelectedOptions, NsaSelectedBackwardOptions {
  TensorRef dout = {}, q = {}, k = {}, v = {}, block_indices = {}, out = {}, lse = {};
  // Not where the forward call writes its own.
  using NsaSelectedBackwardOptions::window_lse, NsaSelectedBackwardOptions::window_out;
};
const OperatorSchema& nsa_selected_attention_backward_schema();

struct NsaBackwardCall {
  NsaBackwardKernel kernel;
  NsaCall forward;
  TensorRef choice, counts;          // a row for each head that selects
  TensorRef dout, out, dwindow_out;  // in the form of programs
  // With `window`: gradients of the window's, which partials add.
  const NsaSelectedBackward* op = nullptr;
};

NsaBackwardCall nsa_backward_call(const Bound<NsaSelectedBackward>& bound);
// The call may be of another operator with the tensors and options of this one. The branch's result and its
// gradient, which may have other names there, are given as that operator has them, and those of the window in
// `op`, which outlives the result.
NsaBackwardCall nsa_backward_call(const BoundCall& bound, const NsaSelectedBackward& op,
                                  const TensorRef& dout, const TensorRef& out);
// The gradients, by one pass or two.
void run_nsa_backward(const NsaBackwardCall& call, Launch& launch);

// Uses nsa_backward_kernel.
void run_two_passes(const NsaBackwardCall& call, Launch& launch);

// Whether nsa_one_pass_kernel can do what is asked for; its instance for the call.
bool can_take_one_pass(const NsaBackwardCall& call);
NsaOnePassKernel one_pass_kernel(const NsaBackwardCall& call);
// Whether it is the way to go on a GPU.
bool takes_one_pass(const NsaBackwardCall& call);
// Tokens that share a call of it, so that partials take no more memory than sums of dq in f32 would.
std::int64_t tokens_of_one_pass(const NsaBackwardCall& call, const NsaOnePassKernel& kernel);
void run_one_pass(const NsaBackwardCall& call, const NsaOnePassKernel& kernel, std::int64_t tokens_of_call,
                  Launch& launch);

}  // namespace tegula::ops

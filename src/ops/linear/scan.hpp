// Programs of recurrences S ← e^g S + k vᵀ, o = scale · Sᵀ q over chunks of tokens: of linear attention, of
// state space models, and with the delta rule, where Wᵀ times the state is subtracted from v.
//
// q and k are [batch, tokens, key heads, d], v [batch, tokens, heads, d_v], and head h has the q and k of
// head h · key heads / heads. `sums` [batch, tokens, heads] are gates, summed from the first token of a chunk
// on. States of chunks, [batch, chunks, heads, d, d_v], are those before a chunk; gradients of them, those
// of the state behind it.
#pragma once
#include "ops/linear/sequences.hpp"

namespace tegula::ops {

struct ScanKernel {
  DType type = f32;
  DType result = f32;    // of out, or of the gradients of q and k
  int d = 64, d_v = 64;  // features, and columns of values
  int block = 64;        // columns that a block has
  bool gated = false;    // there are gates
  bool even = false;     // they are those of heads, which all tokens have: no sums are given
  // The delta rule with decays of features, which fade by `decays` [batch, chunks, heads, d] over a chunk; q
  // and k have their own, q the scale, too, and scores [batch, tokens, heads, 64] are given.
  bool by_feature = false;
  bool grouped = false;  // of gradients: heads share q and k
  bool ones = false;     // the last column of values is 1 and not in memory
  // For scan_kernel: values are weighted, D times the values is added to the results, results are gated.
  bool weighted = false, skip = false, gate = false;
  // For scan_kernel without gates of tokens: from the last token to the first, each with the keys of those
  // that follow.
  bool reverse = false;
  bool first = false, last = false;  // there is a state before the first token, one wanted after the last
  bool packed = false;
  // A processor has one block, whose loads run further ahead.
  bool deep = false;
  // For scan_states_kernel: only the last state is wanted, and how much one before the first token fades; of
  // gradients the first one.
  bool alone = false;
  // Of `alone` with decays of features: d more columns have zero values and the identity as their first
  // state, so that they end as the map that applies to any state.
  bool map = false;
  bool divided = false;             // sequences are divided into segments, which have states of their own
  std::optional<int> of_tile = {};  // rows of a tile that holds whole sequences, for scan_short_kernel
  bool filled = false;              // features are filled up to as many rows as a warp group multiplies
  auto fields() const {
    return std::tuple(type, labelled("to", result), labelled("d", d), labelled("dv", d_v),
                      labelled("b", block), labelled("gated", gated), labelled("even", even),
                      labelled("features", by_feature), labelled("grouped", grouped), labelled("ones", ones),
                      labelled("weighted", weighted), labelled("skip", skip), labelled("gate", gate),
                      labelled("reverse", reverse), labelled("first", first), labelled("last", last),
                      labelled("packed", packed), labelled("deep", deep), labelled("alone", alone),
                      labelled("map", map), labelled("divided", divided), labelled("rows", of_tile),
                      labelled("filled", filled));
  }
  // Slots of tiles of a chunk, of which a step takes so many elements.
  int stages(int elements) const;
  // One warp group has all rows of a chunk where its registers last: two would divide the columns of
  // products, and read operands that one has in registers from shared memory.
  int threads() const;
  // Weights and columns of 32 or 48 of few features take more registers than two blocks of a processor have.
  bool would_spill() const { return weighted && features() < features_of_two && block > 16 && block < 64; }
  // One block of a processor has all of its registers.
  lang::GridOptions options() const;
  // How many blocks a GPU has at once: two of a processor, whose shared memory has tiles of so many features.
  static constexpr int features_of_two = 128;
  std::int64_t blocks_at_once() const;
  // With so many columns, products of warps take no longer than those of warp groups.
  static constexpr int many_columns = 64;
  int columns() const { return d_v + (map ? d : 0); }
  // Extents of tiles.
  int rows() const { return of_tile.value_or(chunk_tokens_of_scan); }
  int features() const {
    const int least = filled && block < many_columns ? 64 : 16;
    return (d + least - 1) / least * least;
  }
};
// Maps of 16 bits are sums of two terms, as products read them.
inline std::vector<const char*> names_of_maps(DType type) {
  if (type.bits() == 16) return {"map", "map_rest"};
  return {"map"};
}
inline DType type_of_maps(DType type) { return type.bits() == 16 ? bf16 : f32; }

// With blocks for chunks that are independent, and for those of which `heads`, of all sequences, have a block
// for each step of columns.
ScanKernel wide(ScanKernel c, bool on_gpu);
ScanKernel narrow(ScanKernel c, std::int64_t heads, bool on_gpu);

// q, k, v, [sums or g_gamma, weights, D, z, initial_state,] scale give out [, final_state]: with weights
// [batch, tokens, heads] v is weights · v but where D [heads] times v is added to the results; these are
// multiplied by silu of z.
lang::Kernel scan_kernel(const ScanKernel& c);
// k, v, [w, sums or g_gamma, weights, decays, initial_state] give states [, v_new, final_state]; with the
// delta rule v is u, and v_new = u − w · state. `alone` they give final_state [, fades [sequences, heads],
// maps [.., d, d] by names_of_maps()].
lang::Kernel scan_states_kernel(const ScanKernel& c);
// q, k, dout, [w, sums, scores, decays, dfinal_state, scale] give dstates, dv [, dinitial_state]. `alone` q,
// dout, [sums,] scale give dinitial_state, of the delta rule k, scores, decays and w as well.
lang::Kernel scan_state_gradients_kernel(const ScanKernel& c);
// q, k, v, dout, states, dstates, [sums,] scale give dq, dk [, dsums], for every chunk by itself.
lang::Kernel scan_gradients_kernel(const ScanKernel& c);

// Gates of tokens and those of heads, which all tokens have, summed inside chunks: from the first token on,
// or from the last.
struct GateKernel {
  std::optional<DType> token, head;
  bool reverse = false, packed = false;
  std::optional<int> of_tile = {};  // rows of a chunk, if not those of scans
  int rows() const { return of_tile.value_or(chunk_tokens_of_scan); }
  auto fields() const {
    return std::tuple(labelled("token", token), labelled("head", head), labelled("reverse", reverse),
                      labelled("packed", packed), labelled("rows", of_tile));
  }
};
// [g, g_gamma] give sums [batch, chunks, heads, rows] as logarithms to base 2; those from the last token on
// are [batch, tokens, heads], of what is given.
lang::Kernel gate_sums_kernel(const GateKernel& c);

// 2^(g_i − g_j) of a score where it is seen: gates fall, and what is above the diagonal may be anything.
lang::Expr decayed(const lang::Expr& score, const lang::Expr& gi, const lang::Expr& gj,
                   const lang::Expr& is_seen);

}  // namespace tegula::ops

// The tile program of dense attention.
#pragma once
#include <optional>
#include <tuple>

#include "ops/pieces/features.hpp"
#include "ops/pieces/score_cap.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// What a compiled instance fixes. Sizes, strides, scale, window and softcap are known at the call only.
struct AttentionKernel {
  DType type = f32;     // of q, k and v
  DType compute = f32;  // of the tiles of queries and keys that are multiplied
  int dim = 64, dim_v = 64;
  TileFeatures padded = {};
  int pack = 1;  // query heads of one group that share a tile
  bool parted = false;  // which are not all heads of a group, or more than it has
  int queries = 64, keys = 64;
  bool left = false, right = false;  // the window is bounded on that side
  ScoreCap softcap = ScoreCap::none;
  bool varlen = false;
  bool listed = false;  // a list says whose the tiles of packed sequences are; see PackedTiles
  bool split = false;   // the keys of a tile are divided; see splits.hpp
  bool shares = false;  // and that by the lengths of packed sequences; see KeyShares
  std::optional<DType> sinks = {};
  // For 8-bit operands: the types of out, of the weights and of the tiles of values, and which tensors have
  // factors.
  std::optional<DType> out = {}, weights = {};
  bool q_scale = false, k_scale = false, v_scale = false;

  DType out_type() const { return out.value_or(type); }
  DType weight_type() const { return weights.value_or(compute); }
  // Weights of 8 bits: a grid transposes the values, so that they run along the keys.
  bool transposes_values() const { return weight_type().bits() == 8; }
  int rows() const { return queries * pack; }
  // That are multiplied: tiles may have more.
  int features() const { return padded.multiplied(dim); }
  int features_v() const { return padded.multiplied_v(dim_v); }
  auto fields() const {
    return std::tuple(type, compute, labelled("d", dim), labelled("v", dim_v), padded, labelled("g", pack),
                      labelled("parted", parted), labelled("q", queries), labelled("k", keys),
                      labelled("left", left), labelled("right", right), softcap, labelled("sinks", sinks),
                      labelled("varlen", varlen), labelled("listed", listed), labelled("split", split),
                      labelled("shares", shares), labelled("out", out), labelled("weights", weights),
                      labelled("qs", q_scale), labelled("ks", k_scale), labelled("vs", v_scale));
  }
};

// Arguments: q [batch, queries, kv heads, group, d], k, v, out as q, lse [batch, kv heads, group, queries],
// scale (with log2(e)); then, where the instance has them, left, right, cap, sinks [kv heads, group]. Packed
// sequences: no batch dimension, and q_begin, k_begin [sequences + 1], longest (the most queries of a
// sequence); the list [tiles], if there is one. Where keys are divided, the number of splits. Then the
// factors [sequences, kv heads] that there are, last longest_k where values of packed sequences are
// transposed.
lang::Kernel attention_kernel(const AttentionKernel& instance);

}  // namespace tegula::ops

// The tile program of dense attention.
#pragma once
#include <optional>
#include <tuple>

#include "ops/pieces/features.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// What a compiled instance fixes. Sizes, strides, scale, window and softcap are known at the call only.
struct AttentionKernel {
  DType type = f32;     // of q, k, v and out
  DType compute = f32;  // of the tiles that are multiplied
  int dim = 64, dim_v = 64;
  TileFeatures padded = {};
  int pack = 1;  // query heads of one group that share a tile
  int queries = 64, keys = 64;
  bool left = false, right = false;  // the window is bounded on that side
  bool softcap = false, varlen = false;
  bool split = false;  // the keys of a tile are divided; see splits.hpp
  std::optional<DType> sinks = {};

  int rows() const { return queries * pack; }
  // Of tiles.
  int features() const { return padded.of(dim); }
  int features_v() const { return padded.of_v(dim_v); }
  // Two warp groups hold the columns of a wide sum. Its stores leave the room of their buffers to tiles.
  bool divides_columns() const { return compute.bits() == 16 && features_v() > 256 && rows() == 64; }
  auto fields() const {
    return std::tuple(type, compute, labelled("d", dim), labelled("v", dim_v), padded, labelled("g", pack),
                      labelled("q", queries), labelled("k", keys), labelled("left", left),
                      labelled("right", right), labelled("softcap", softcap), labelled("sinks", sinks),
                      labelled("varlen", varlen), labelled("split", split));
  }
};

// Arguments: q [batch, queries, kv heads, group, d], k, v, out as q, lse [batch, kv heads, group, queries],
// scale (with log2(e)); then, where the instance has them, left, right, cap, sinks [kv heads, group]. Packed
// sequences: no batch dimension, and q_begin, k_begin [sequences + 1], longest (the most queries of a
// sequence). Last, where keys are divided, the number of parts.
lang::Kernel attention_kernel(const AttentionKernel& instance);

}  // namespace tegula::ops

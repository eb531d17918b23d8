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
  // That are multiplied: tiles may have more.
  int features() const { return padded.dim > 0 ? multiplied_features(dim) : dim; }
  int features_v() const { return padded.dim_v > 0 ? multiplied_features(dim_v) : dim_v; }
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

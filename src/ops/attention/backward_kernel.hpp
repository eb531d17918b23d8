// The tile program of the gradients of dense attention.
#pragma once
#include <optional>
#include <tuple>

#include "ops/attention/gradient.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// As AttentionKernel; `queries` and `keys` are the extents of the tiles of both passes.
struct AttentionBackwardKernel {
  DType type = f32;     // of all tensors but the vectors over queries
  DType compute = f32;  // of the tiles that are multiplied
  int dim = 64, dim_v = 64;
  int pack = 1;  // query heads of one group that share a tile
  int queries = 64, keys = 64;
  bool left = false, right = false;  // the window is bounded on that side
  bool softcap = false, varlen = false;
  std::optional<DType> sinks;
  bool dlse = false;
  bool one_pass = false;  // dq is summed over the blocks of keys in f32
  bool ordered = false;   // in their order, which takes a mask whose left side is open

  GradientTiles tiles() const { return {compute, dim, dim_v, pack, queries, keys}; }
  int rows() const { return queries * pack; }
  auto fields() const {
    return std::tuple(type, compute, labelled("d", dim), labelled("v", dim_v), labelled("g", pack),
                      labelled("q", queries), labelled("k", keys), labelled("left", left),
                      labelled("right", right), labelled("softcap", softcap), labelled("sinks", sinks),
                      labelled("dlse", dlse), labelled("varlen", varlen), labelled("one_pass", one_pass),
                      labelled("ordered", ordered));
  }
};

// Four grids: delta of the queries, dq by tiles of queries, dk and dv by tiles of keys, dsinks by heads. No
// two blocks write one element, so that nothing depends on their order. In one pass, dk and dv come first and
// add what they know of dq, which saves two of the seven products. Arguments: dout as out, then q, k, v,
// out, lse as in attention_kernel, dq, dk, dv, scale (with log2(e)); then, where the instance has them, left,
// right, cap, sinks and dsinks [kv heads, group], dlse as lse, and for packed sequences q_begin, k_begin
// [sequences + 1], longest_q, longest_k.
lang::Kernel attention_backward_kernel(const AttentionBackwardKernel& instance);

}  // namespace tegula::ops

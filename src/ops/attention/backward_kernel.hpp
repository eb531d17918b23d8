// The tile program of the gradients of dense attention.
#pragma once
#include <optional>
#include <tuple>

#include "ops/pieces/features.hpp"
#include "ops/pieces/gradient.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// As AttentionKernel; `queries` and `keys` are the extents of the tiles of both passes.
struct AttentionBackwardKernel {
  DType type = f32;     // of all tensors but the vectors over queries
  DType compute = f32;  // of the tiles that are multiplied
  int dim = 64, dim_v = 64;
  TileFeatures padded = {};
  int pack = 1;  // query heads of one group that share a tile
  int queries = 64, keys = 64;
  // Queries or keys of a step, where they are fewer than those that a block sums: then both passes have tiles
  // of their own, and dk and dv one each.
  int step = 0;
  int splits = 1;                    // of the queries of a group, which sum dk and dv by themselves
  int row_splits = 1;                // of the queries of a head: so many of the splits have the same heads
  bool left = false, right = false;  // the window is bounded on that side
  ScoreCap softcap = ScoreCap::none;
  bool varlen = false;
  bool listed = false;  // lists say whose the tiles of packed sequences are
  std::optional<DType> sinks;
  bool dlse = false;
  bool one_pass = false;    // dq is summed over the blocks of keys in f32
  bool alone = false;       // and each head has one block of keys, which knows all of dq
  bool ordered = false;     // in their order
  bool late = false;        // each step multiplies out what the step before contributes to dq
  // Blocks of a head on a CPU, each of which goes through its share of the tiles of keys and sums dq by
  // itself.
  int shares = 0;
  bool rows_first = false;  // blocks of keys meet all heads of the group for a tile of queries, then the next

  // The tiles of the pass over queries, and of the passes over keys.
  GradientTiles query_tiles() const {
    return {compute, features(), features_v(), pack, queries, step ? step : keys, direct()};
  }
  GradientTiles key_tiles() const {
    // 1 to 7 % faster; 3 % slower without a mask
    const bool late_values = right && !left && !late && (ordered || alone);
    return {compute, features(), features_v(), pack, step ? step : queries,
            keys,    direct(),   late_values,  late};
  }
  // The features of tiles.
  int features() const { return padded.of(dim); }
  int features_v() const { return padded.of_v(dim_v); }
  // Tiles of a step take the room of buffers for the copy engine.
  bool direct() const { return step > 0 && features() + features_v() > 512; }
  auto fields() const {
    return std::tuple(type, compute, labelled("d", dim), labelled("v", dim_v), padded, labelled("g", pack),
                      labelled("q", queries), labelled("k", keys),
                      labelled("by_", step > 0 ? std::optional(step) : std::nullopt),
                      labelled("parts_", splits > 1 ? std::optional(splits) : std::nullopt),
                      labelled("rows_", row_splits > 1 ? std::optional(row_splits) : std::nullopt),
                      labelled("left", left), labelled("right", right), softcap, labelled("sinks", sinks),
                      labelled("dlse", dlse), labelled("varlen", varlen), labelled("listed", listed),
                      labelled("one_pass", one_pass), labelled("alone", alone), labelled("ordered", ordered),
                      labelled("late", late),
                      labelled("shares_", shares > 0 ? std::optional(shares) : std::nullopt),
                      labelled("rows_first", rows_first));
  }
};

// Four grids: delta of the queries, dq by tiles of queries, dk and dv by tiles of keys, dsinks by heads. No
// two blocks write one element, so that nothing depends on their order. With a `step` dk and dv have grids of
// their own, since registers hold one sum. In one pass, dk and dv come first and
// add what they know of dq, which saves two of the seven products. With `shares` a block has sums of dq of
// its own, which a grid adds up. Arguments: dout as out, then q, k, v, out, lse as in attention_kernel, dq,
// dk, dv, scale (with log2(e)); then, where the instance has them, left, right, cap, sinks and dsinks [kv
// heads, group], dlse as lse, and for packed sequences q_begin, k_begin [sequences + 1], longest_q,
// longest_k, and the lists.
lang::Kernel attention_backward_kernel(const AttentionBackwardKernel& instance);

}  // namespace tegula::ops

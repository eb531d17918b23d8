// The tile program of attention to listed rows, whose first features are values.
#pragma once
#include <optional>

#include "ops/pieces/features.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

constexpr int most_undivided = 256;  // values of a row in sums that one warp group has

struct SparseMlaKernel {
  DType type = f32;     // of q, kv and out
  DType compute = f32;  // of the tiles that are multiplied
  int dim = 64, dim_v = 64;
  TileFeatures padded = {};  // of tiles of values, and of the features after them
  int rows = 64, keys = 64;  // heads and rows of a tile
  bool causal = false, counts = false, more = false, split = false;
  bool whole = false;          // all lists are whole tiles of entries
  bool numbers_ahead = false;  // those of the rows of many steps come together, and not step by step
  // Features of a row of q that a program does not read: threads bring rows, wherever they begin.
  int off = 0;
  std::optional<DType> sinks = {};

  int rest() const { return dim - dim_v; }
  auto fields() const {
    return std::tuple(type, compute, labelled("d", dim), labelled("v", dim_v), padded, labelled("h", rows),
                      labelled("k", keys), labelled("causal", causal), labelled("counts", counts),
                      labelled("more", more), labelled("split", split), labelled("whole", whole),
                      labelled("numbers_ahead", numbers_ahead), labelled("sinks", sinks),
                      labelled("off", off > 0 ? std::optional(off) : std::nullopt));
  }
};

// Arguments: the values and the rest of q [batch, queries, kv heads, group, …] and of kv [batch, keys, kv
// heads, …], q_rest and kv_rest only where there are such features, indices [batch, queries, kv heads,
// entries], out, lse [batch, queries, kv heads, group], scale (with log2(e)); then, where the instance has
// them, offset (keys − queries), counts, sinks [kv heads, group], more_values, more_rest, more_indices, and
// the number of splits.
lang::Kernel sparse_mla_kernel(const SparseMlaKernel& instance);

}  // namespace tegula::ops

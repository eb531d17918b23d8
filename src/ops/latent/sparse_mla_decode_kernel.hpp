// The tile program of attention to listed records of a cache, whose values have 8 bits and scales.
#pragma once
#include <optional>

#include "ops/pieces/features.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

struct SparseMlaDecodeKernel {
  DType type = bf16, compute = bf16;  // of q and out, and of the tiles that are multiplied
  int dim = 576, dim_v = 512;
  int scaled = 128;          // values that share a scale
  TileFeatures padded = {};  // of tiles of values, and of the features after them
  int rows = 64, keys = 64;  // heads and records of a tile
  bool counts = false;
  std::optional<DType> sinks = {};

  int rest() const { return dim - dim_v; }
  auto fields() const {
    return std::tuple(type, compute, labelled("d", dim), labelled("v", dim_v), labelled("s", scaled), padded,
                      labelled("h", rows), labelled("k", keys), labelled("counts", counts),
                      labelled("sinks", sinks));
  }
};

// Arguments: the values and the rest of q [queries, heads, …], values [rows, d_v] in e4m3, scales [rows,
// groups], ropes [rows, d − d_v] where there are such features, indices [queries, entries], out, lse
// [queries, heads], scale (with log2(e)), the number of splits; then, where the instance has them, counts
// [queries] and sinks [heads].
lang::Kernel sparse_mla_decode_kernel(const SparseMlaDecodeKernel& instance);

}  // namespace tegula::ops

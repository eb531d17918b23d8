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
  int in_8_bits = 512;       // features of `values`; the others are those of `ropes`
  int scaled = 128;          // values that share a scale
  bool powers = false;       // scales are exponents of 2
  int page = 0;              // records of a page, where pages are not one behind the other; 0: they are
  TileFeatures padded = {};  // of tiles of values, and of the features after them
  int rows = 64, keys = 64;  // heads and records of a tile
  bool counts = false;
  std::optional<DType> sinks = {};

  int rest() const { return dim - dim_v; }  // features that are no values
  auto fields() const {
    return std::tuple(
        type, compute, labelled("d", dim), labelled("v", dim_v),
        labelled("b", in_8_bits < dim_v ? std::optional(in_8_bits) : std::nullopt), labelled("s", scaled),
        labelled("powers", powers), labelled("page", page > 0 ? std::optional(page) : std::nullopt), padded,
        labelled("h", rows), labelled("k", keys), labelled("counts", counts), labelled("sinks", sinks));
  }
};

// Arguments: the values and the rest of q [queries, heads, …], values [rows, in_8_bits] in e4m3, scales
// [rows, groups], ropes [rows, d − in_8_bits] where there are such features (with pages these three are
// [pages, page, …]), indices [queries, entries], out, lse [queries, heads], scale (with log2(e)), the number
// of splits; then, where the instance has them, counts [queries] and sinks [heads].
lang::Kernel sparse_mla_decode_kernel(const SparseMlaDecodeKernel& instance);

}  // namespace tegula::ops

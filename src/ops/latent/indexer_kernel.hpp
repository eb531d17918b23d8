// The tile program of the lightning indexer's logits.
#pragma once
#include <optional>

#include "ops/decode/cache_rows.hpp"
#include "ops/schema/bound.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

struct IndexerKernel {
  DType type = f32, compute = f32;  // of q and k, and of their tiles
  DType weights = f32;
  int heads = 64, dim = 128;
  int queries = 2, keys = 128;               // of a tile
  int together = 1;                          // queries whose heads are columns of one product
  int tile_heads = 64, tile_features = 128;  // with zeros after those of the tensors
  bool scales = false, begins = false, ends = false, causal = false;
  CacheForm form = {};  // of keys that are in a cache

  auto fields() const {
    return std::tuple(
        type, compute, labelled("w", weights), labelled("h", heads), labelled("d", dim),
        labelled("q", queries), labelled("together", together > 1 ? std::optional(together) : std::nullopt),
        labelled("k", keys), joined("in_", tile_heads, tile_features), labelled("scales", scales),
        labelled("begins", begins), labelled("ends", ends), labelled("causal", causal), form);
  }
};

// The instance for a call that has q, k, weights, and k_scales, begins and ends if they are given.
IndexerKernel indexer_instance(const BoundCall& c, bool causal);
// Splits of the keys, each for a block, where queries alone do not fill the machine.
std::int64_t indexer_splits(const BoundCall& c, const IndexerKernel& kernel, std::int64_t queries,
                            std::int64_t keys);

// Arguments: q [batch, queries, heads, d], k [batch, keys, d] or pages [pages, page size, d], weights [batch,
// queries, heads], logits [batch, queries, keys], the number of splits; then, where the instance has them,
// k_scales as k without d, block_table, cache_seqlens, begins and ends [batch, queries], offset (the position
// of the first query).
lang::Kernel indexer_kernel(const IndexerKernel& instance);

// What the keys are that a query sees: [begin, end).
struct SeenKeys {
  lang::Expr queries, keys;
  std::optional<lang::Tensor> begins, ends;  // [batch, queries]
  std::optional<lang::Expr> offset;
  std::optional<lang::Tensor> lengths = {};  // [batch], of a cache

  // Declares parameters.
  SeenKeys(const lang::Expr& batch, const lang::Expr& queries, const lang::Expr& keys, bool begins, bool ends,
           bool causal);
  // Keys of a sequence.
  lang::Expr count(const lang::Expr& b) const;
  lang::Expr begin(const lang::Expr& b, const lang::Expr& query) const;
  // 0 for a query that does not exist.
  lang::Expr end(const lang::Expr& b, const lang::Expr& query) const;
};

}  // namespace tegula::ops

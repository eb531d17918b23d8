// The gradients of keys and values by tiles of keys, each of which loops over the blocks of queries that
// selected it.
#pragma once
#include "ops/lists/inverse.hpp"
#include "ops/lists/walk.hpp"
#include "ops/pieces/gradient.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

// The queries of one head, or of all heads of a group: [tokens, (pack,) …], vectors [tokens · pack] or
// [(pack,) tokens].
struct QueryTensors {
  lang::Tensor q, dout, base, delta;
};

// The tiles that a walk over queries loads.
struct QueryTile {
  lang::Shared q, dout, base, delta;

  explicit QueryTile(const GradientTiles& tiles);
  // Queries from `first` on.
  void load(const QueryTensors& from, const lang::Expr& first, int pack);
};

// The mask of a step of the walk: rows are those of the tile of keys, columns those of the tile of queries.
// It may record statements that come before the step.
using MaskOfStep = std::function<ScoreGradient::Mask(const BlockTile& queries)>;

// Adds what the queries of a list give, and to `query_sums` [tokens, d] what they get, where it is given.
void add_list(KeyGradient& sums, const GradientTiles& tiles, const InverseLists::List& list,
              const TileOfBlocks& shape, const QueryTensors& queries, const MaskOfStep& mask,
              const std::optional<lang::Tensor>& query_sums = {});

}  // namespace tegula::ops

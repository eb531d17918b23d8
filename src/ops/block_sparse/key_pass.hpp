// The gradients of keys and values by tiles of keys, which walk the blocks of queries that chose them.
#pragma once
#include "ops/attention/gradient.hpp"
#include "ops/attention/views.hpp"
#include "ops/block_sparse/inverse.hpp"
#include "ops/block_sparse/walk.hpp"

namespace tegula::ops {

// The queries of one head, or of all heads of a group: [tokens, (pack,) …], vectors [(pack,) tokens].
struct QueryTensors {
  lang::Tensor q, dout, lse, delta;
};

// The tiles that a walk over queries loads.
struct QueryTile {
  lang::Shared q, dout, lse, delta;

  explicit QueryTile(const GradientTiles& tiles);
};

// Whether a step of the walk has queries that do not see all keys (nothing: ask anyway), and what becomes of
// the weight of a row of the tile of keys and a row of the step.
struct ListMask {
  std::function<std::optional<lang::Expr>(const BlockTile& queries)> partial;
  std::function<lang::Expr(const BlockTile& queries, const lang::Expr& key, const lang::Expr& query,
                           const lang::Expr& weight)>
      weigh;
};
// Adds what the queries of a list give.
void add_list(KeyGradient& sums, const GradientTiles& tiles, const InverseLists::List& list,
              const TileOfBlocks& shape, const QueryTensors& queries, const ListMask& mask);

}  // namespace tegula::ops

#include "ops/pieces/key_pass.hpp"

#include "ops/pieces/scores.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

QueryTile::QueryTile(const GradientTiles& tiles)
    : q({tiles.rows(), tiles.dim}, tiles.compute),
      dout({tiles.rows(), tiles.dim_v}, tiles.compute),
      base({tiles.rows()}, f32),
      delta({tiles.rows()}, f32) {}

void QueryTile::load(const QueryTensors& from, const Expr& first, int pack) {
  load_queries(from.q, first, q, pack);
  load_queries(from.dout, first, dout, pack);
  load_vector(from.base, first, base, pack);
  load_vector(from.delta, first, delta, pack);
}

void add_list(KeyGradient& sums, const GradientTiles& tiles, const InverseLists::List& list,
              const TileOfBlocks& shape, const QueryTensors& queries, const MaskOfStep& mask,
              const std::optional<Tensor>& query_sums) {
  walk_blocks(
      shape, [&](const Expr& n) { return list.row(n); }, list.count,
      [&](const BlockTile& step) {
        QueryTile tile(tiles);
        step.load(queries.q, tile.q, tiles.pack);
        step.load(queries.dout, tile.dout, tiles.pack);
        step.load_vector(queries.base, tile.base, tiles.pack);
        step.load_vector(queries.delta, tile.delta, tiles.pack);
        KeyGradient::Receiver receiver;
        if (query_sums)
          receiver = [&](const Fragment& contribution) {
            accumulate(query_sums->at(step.first), contribution);
          };
        sums.add(tile.q, tile.dout, tile.base, tile.delta, mask(step), receiver);
      });
}

}  // namespace tegula::ops

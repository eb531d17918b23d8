#include "ops/products/grouped_walk.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

Tensor GroupedTile::of(const Tensor& all_groups, int axis) const {
  if (divided) return axis == 0 ? all_groups.slice(rows) : all_groups.slice(all, rows);
  return axis == 0 ? all_groups.slice(group, rows) : all_groups.slice(group, all, rows);
}

Extents GroupedWalk::extents(Extents own) const {
  if (!form_.offsets) own.insert(own.begin(), groups_);
  return own;
}

void GroupedWalk::each(const Expr& columns, int tile_rows, const Body& body, int blocks) const {
  const GridOptions options{.order = Order::grouped(8), .blocks_per_processor = blocks};
  if (form_.offsets) {
    const GroupTiles tiles(input("offsets", {groups_ + 1}, i32), m_, scalar("max_rows", i32), tile_rows);
    return grid(columns, tiles.count(), options, [&](Index x, Index y) {
      Expr group = tiles.group(y);
      exit_if(group < 0);
      body(x, GroupedTile{group, tiles.row(y), tiles.rows(group), true});
    });
  }
  std::optional<Tensor> counts;
  if (form_.counts) counts.emplace(input("counts", {groups_}, i32));
  grid(columns, ceildiv(m_, tile_rows), groups_, options, [&](Index x, Index y, Index group) {
    Expr count = counts ? Expr((*counts)(group)) : Expr(m_);
    if (counts) assert_that(count >= 0 && count <= m_, "a group counts no more rows than it has");
    exit_if(y * tile_rows >= count);
    body(x, GroupedTile{group, y * tile_rows, range(0, count), false});
  });
}

}  // namespace tegula::ops

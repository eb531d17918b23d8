#include "ops/products/grouped_walk.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

Tensor GroupedTile::of(const Tensor& all_groups, int axis) const {
  if (divided) return axis == 0 ? all_groups.slice(rows) : all_groups.slice(all, rows);
  return axis == 0 ? all_groups.slice(group, rows) : all_groups.slice(group, all, rows);
}

Tensor GroupedTile::read_of(const Tensor& all_groups) const {
  return divided ? all_groups : all_groups.slice(group);
}
Expr GroupedTile::first_read() const { return divided ? rows.begin + row : row; }

Extents GroupedWalk::extents(Extents own) const {
  if (!form_.offsets) own.insert(own.begin(), groups_);
  return own;
}

void GroupedWalk::divide(int tile_rows) {
  tile_rows_ = tile_rows;
  if (form_.offsets)
    divided_.emplace(input("offsets", {groups_ + 1}, i32), m_, scalar("max_rows", i32), tile_rows);
  else if (form_.counts)
    counts_.emplace(input("counts", {groups_}, i32));
}

Expr GroupedWalk::tiles() const { return divided_ ? divided_->count() : groups_ * ceildiv(m_, tile_rows_); }

void GroupedWalk::each(const Expr& columns, const Body& body, int blocks) const {
  const GridOptions options{.order = Order::grouped(8), .blocks_per_processor = blocks};
  if (divided_)
    return grid(columns, tiles(), options, [&](Index x, Index y) {
      Expr group = divided_->group(y);
      exit_if(group < 0);
      body(x, GroupedTile{y, group, divided_->row(y), divided_->rows(group), true});
    });
  grid(columns, ceildiv(m_, tile_rows_), groups_, options, [&](Index x, Index y, Index group) {
    Expr count = counts_ ? Expr((*counts_)(group)) : Expr(m_);
    if (counts_) assert_that(count >= 0 && count <= m_, "a group counts no more rows than it has");
    exit_if(y * tile_rows_ >= count);
    Expr number = group * ceildiv(m_, tile_rows_) + y;
    body(x, GroupedTile{number, group, y * tile_rows_, range(0, count), false});
  });
}

}  // namespace tegula::ops

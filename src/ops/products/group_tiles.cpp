#include "ops/products/group_tiles.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int groups_at_once = 128;

// How many tiles the groups before `group` have: [1, 1].
Fragment tiles_before(const Tensor& offsets, const Expr& group, int rows) {
  Fragment tiles({1, groups_at_once}, i32, 0);
  serial(ceildiv(group, groups_at_once), [&](Index step) {
    Expr first = step * groups_at_once;
    Fragment begin = load(offsets.at(first), {groups_at_once}),
             end = load(offsets.at(first + 1), {groups_at_once});
    parallel(tiles, [&](Index i, Index j) {
      tiles(i, j) += select(first + j < group, ceildiv(end(j) - begin(j), rows), 0);
    });
  });
  return reduce_sum(tiles);
}

}  // namespace

GroupTiles::GroupTiles(const Tensor& offsets, const Expr& rows, const Expr& most, int rows_of_tile)
    : offsets_(offsets),
      count_(ceildiv(rows, rows_of_tile) + offsets.extent(0) - 1),
      table_(workspace("tiles", {count_, 2}, i32)) {
  Expr groups = offsets.extent(0) - 1;
  grid(groups, {.threads = 128}, [&](Index g) {
    Expr begin = offsets(g), end = offsets(g + 1);
    assert_that(begin <= end && (g > 0 || begin == 0) && (g < groups - 1 || end <= rows),
                "offsets begin with 0, do not fall, and end within the rows");
    assert_that(most == 0 || end - begin <= most, "no group has more than max_rows rows");
    Fragment before = tiles_before(offsets, g, rows_of_tile);
    Expr own = ceildiv(end - begin, rows_of_tile);
    parallel(own, [&](Index i) {
      table_(before(0) + i, 0) = g;
      table_(before(0) + i, 1) = i * rows_of_tile;
    });
    // There are no tiles after the last one.
    when(g == groups - 1,
         [&] { parallel(count_, [&](Index i) { when(i >= before(0) + own, [&] { table_(i, 0) = -1; }); }); });
  });
}

}  // namespace tegula::ops

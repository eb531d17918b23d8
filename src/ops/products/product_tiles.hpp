// Chooses the tile of a product with one program for all its tiles: among a few, the one whose blocks take
// the least time.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

struct ProductTile {
  int m = 0, n = 0;
};

// `groups` products of m · n · k, each with tiles of its own.
struct ProductExtents {
  std::int64_t groups = 1, m = 1, n = 1, k = 1;
};

// Rows of groups: where they are one after the other (`divided`) those of all, else those that each has room
// for; `most`, if it is not 0, is promised of each.
struct GroupedRows {
  std::int64_t groups = 1, rows = 0, most = 0;
  bool divided = false;

  // Rows of a group, as plans assume.
  std::int64_t usual() const {
    const std::int64_t count = std::max<std::int64_t>(groups, 1);
    const std::int64_t mean = divided ? (rows + count - 1) / count : rows;
    return most > 0 ? std::min(mean, most) : mean;
  }
};

// Blocks run in rounds; each takes its sums' time, or that of the operands' bytes. Tiles twice as large as
// the product are left out.
template <class Tiles>
ProductTile best_tile(const Tiles& tiles, const ProductExtents& p, double bytes, int processors) {
  const auto blocks = [&](const TileCost& t) {
    return static_cast<double>(p.groups) * std::ceil(static_cast<double>(p.m) / t.m) *
           std::ceil(static_cast<double>(p.n) / t.n);
  };
  const TileCost best = best_of(tiles, [&](const TileCost& t) {
    const double sums = static_cast<double>(t.m) * t.n, rounds = std::ceil(blocks(t) / processors);
    const double read = rounds * processors * (t.m + t.n) * static_cast<double>(p.k) * bytes;
    const double work = rounds * sums * (static_cast<double>(p.k) * t.cost * 1e-6 + gpu_table.product.store);
    return work + read / (8 * gpu_table.product.bytes_of_microsecond);
  });
  return {best.m, best.n};
}

}  // namespace tegula::ops

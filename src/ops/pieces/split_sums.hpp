// Sums whose terms are split among blocks of a grid, and added by another in a fixed order.
#pragma once
#include <algorithm>
#include <vector>

#include "tegula/lang.hpp"

namespace tegula::ops {

inline constexpr int splits_under_way = 8;

// Adds the tiles that `left(split)` says where to find. Several are loaded before the first of them is added,
// so that one way to memory is waited for instead of one after the other.
template <class Left>
void add_splits(lang::Fragment& sum, int splits, const Left& left) {
  for (int first = 0; first < splits; first += splits_under_way) {
    std::vector<lang::Fragment> own;
    for (int split = first; split < std::min(first + splits_under_way, splits); ++split)
      own.push_back(
          lang::load(left(split), {static_cast<int>(sum.extent(0)), static_cast<int>(sum.extent(1))}));
    parallel(sum, [&](lang::Index i, lang::Index j) {
      for (const lang::Fragment& one : own) sum(i, j) += one(i, j);
    });
  }
}

}  // namespace tegula::ops

// Sums whose terms are split among blocks of a grid, and added by another in a fixed order.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::ops {

// Adds the tiles that `left(split)` says where to find.
template <class Left>
void add_splits(lang::Fragment& sum, int splits, const Left& left) {
  for (int split = 0; split < splits; ++split) {
    const lang::Fragment own =
        lang::load(left(split), {static_cast<int>(sum.extent(0)), static_cast<int>(sum.extent(1))});
    parallel(sum, [&](lang::Index i, lang::Index j) { sum(i, j) += own(i, j); });
  }
}

}  // namespace tegula::ops

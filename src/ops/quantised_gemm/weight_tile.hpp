// A tile of quantised weights in shared memory, with the scales and zeros of its groups.
#pragma once
#include "ops/quantised_gemm/weights.hpp"

namespace tegula::ops {

// Scales or zeros of a tile, [n, groups], or [groups, n] where those of a group are contiguous.
class GroupNumbers {
 public:
  GroupNumbers(const lang::Tensor& numbers, bool by_group, const lang::Expr& row, const lang::Expr& group,
               int rows, int groups);
  lang::Expr at(const lang::Index& row, const lang::Expr& group) const;

 private:
  lang::Shared tile_;
  bool by_group_;
};

// Rows of weights from `row` on, columns from `first` on.
class WeightTile {
 public:
  struct Extents {
    int rows, columns;
  };
  WeightTile(const QuantisedWeights& weights, const QuantisedMatrix& matrix, const lang::Expr& row,
             const lang::Expr& first, Extents extents, bool with_scales);

  // A weight without its scale; `shifts` as in PackedPlace.
  lang::Expr number(const lang::Index& i, const lang::Index& j, bool shifts) const;
  // Of a weight, and of all weights of a row where groups are no shorter than the tile.
  lang::Expr scale(const lang::Index& i, const lang::Index& j) const;
  lang::Expr scale(const lang::Index& i) const;

 private:
  lang::Expr group_of(const lang::Index& j) const;

  const QuantisedWeights& w_;
  int groups_, columns_of_group_;
  lang::PackedShared b_;
  std::optional<GroupNumbers> scales_, zeros_;
};

}  // namespace tegula::ops

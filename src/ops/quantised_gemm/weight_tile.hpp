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

// Rows of weights from `row` on, columns from `first` on: of each part one below the other, so that all parts
// have the short rows of one.
class WeightTile {
 public:
  struct Extents {
    int rows, columns, parts = 1;
  };
  WeightTile(const QuantisedWeights& weights, const QuantisedMatrix& matrix, const lang::Expr& row,
             const lang::Expr& first, Extents extents, bool with_scales);

  // Weight j of the part without its scale; `shifts` as in PackedPlace.
  lang::Expr number(const lang::Index& i, const lang::Index& j, bool shifts,
                    const WeightPart& part = {}) const;
  // Of a weight, and of all weights of a row where groups are no shorter than the part.
  lang::Expr scale(const lang::Index& i, const lang::Index& j, const WeightPart& part = {}) const;
  lang::Expr scale(const lang::Index& i, const WeightPart& part = {}) const;

 private:
  void load_weights(const QuantisedMatrix& matrix, const lang::Expr& row, const lang::Expr& first, int parts);
  lang::Expr group_of(const lang::Index& j, const WeightPart& part) const;
  // The first group of the part.
  lang::Expr first_group(const WeightPart& part) const;

  const QuantisedWeights& w_;
  int rows_, columns_, groups_, columns_of_group_;
  lang::PackedShared b_;
  std::optional<GroupNumbers> scales_, zeros_;
};

}  // namespace tegula::ops

// Sums over rows that are read in pieces, for norms.
#pragma once
#include <optional>

#include "ops/pieces/rows.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// What is known of a row once it has been read: the mean is 0 where rows are not centred.
struct RowTotals {
  lang::Expr mean, squares;    // of the row, and of what it is above its mean
  lang::Expr given, products;  // sums of g, and of g times what the row is above its mean
};

// Statistics of each column of the pieces, joined when the row is over. They count from the column's first
// element: the row's own variance holds its distance from the mean, so that squares which cancel are no
// larger than what is asked for.
class RowStatistics {
 public:
  RowStatistics(const LongRows& rows, const lang::Expr& features, bool centred, bool of_gradient);

  // Of the piece that begins at this feature; `begins`: it is the first that is added. x and g are 0 beyond
  // the end of the row.
  void add(const lang::Expr& first, const lang::Expr& begins, const lang::Fragment& x,
           const lang::Fragment* g = nullptr);
  RowTotals total();

 private:
  lang::Expr joined_mean();

  int piece_;
  bool whole_;
  lang::Expr features_;
  bool centred_;
  lang::Fragment squares_;
  std::optional<lang::Fragment> base_, sum_, given_, products_;
};

}  // namespace tegula::ops

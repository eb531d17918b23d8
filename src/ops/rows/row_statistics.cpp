#include "ops/rows/row_statistics.hpp"

#include <vector>

namespace tegula::ops {

using namespace lang;

RowStatistics::RowStatistics(const LongRows& rows, const Expr& features, bool centred, bool of_gradient)
    : piece_(rows.piece),
      whole_(rows.whole),
      features_(features),
      centred_(centred),
      squares_({rows.piece}, f32, 0) {
  const std::initializer_list<int> shape{piece_};
  if (centred) base_.emplace(shape, f32, 0), sum_.emplace(shape, f32, 0);
  if (of_gradient) products_.emplace(shape, f32, 0);
  if (of_gradient && centred) given_.emplace(shape, f32, 0);
}

void RowStatistics::add(const Expr& first, const Expr& begins, const Fragment& x, const Fragment* g) {
  parallel(x, [&](Index j) {
    if (!centred_) {
      squares_(j) += x(j) * x(j);
      if (g != nullptr) (*products_)(j) += (*g)(j)*x(j);
      return;
    }
    (*base_)(j) = select(begins, x(j), (*base_)(j));
    Expr own = x(j) - (*base_)(j);
    const Var above = whole_ ? own : select(first + j < features_, own, 0.f);
    (*sum_)(j) += above;
    squares_(j) += above * above;
    if (g == nullptr) return;
    (*products_)(j) += (*g)(j)*above;
    (*given_)(j) += (*g)(j);
  });
}

RowTotals RowStatistics::total() {
  const Expr none = f32(0), mean = centred_ ? joined_mean() : none;
  // One after the other, so that the parts of all meet at once.
  std::vector<Fragment> sums;
  sums.push_back(reduce_sum(squares_));
  if (products_) sums.push_back(reduce_sum(*products_));
  if (given_) sums.push_back(reduce_sum(*given_));
  return {mean, sums[0].scalar(), given_ ? sums[2].scalar() : none, products_ ? sums[1].scalar() : none};
}

// The columns' sums become those around the row's mean.
Expr RowStatistics::joined_mean() {
  const Expr whole = features_ / piece_, rest = features_ % piece_;
  const auto count = [&](Index j) -> Expr {
    return whole_ ? f32(whole) : f32(whole + select(j < rest, 1, 0));
  };
  const Expr mean =
      reduce_sum(map(*base_, [&](Index j) { return (*base_)(j)*count(j) + (*sum_)(j); })).scalar() /
      f32(features_);
  parallel(*base_, [&](Index j) {
    const Var apart = (*base_)(j)-mean;
    squares_(j) += apart * (2.f * (*sum_)(j) + count(j) * apart);
    if (given_) (*products_)(j) += apart * (*given_)(j);
  });
  return mean;
}

}  // namespace tegula::ops

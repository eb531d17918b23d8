// What the programs of decode and sparse attention share, and their formula.
#pragma once
#include "ops/pieces/softmax.hpp"
#include "tests/programs/program.hpp"

namespace programs {

using tegula::ops::OnlineSoftmax;
using tegula::ops::scale_rows;

inline constexpr double log2_of_e = 1.4426950408889634;

// Scores of the columns from `left` on become −∞.
inline void mask_columns(Fragment& s, const Expr& left, tegula::Loc at = tegula::Loc::current()) {
  Trace trace("mask_columns", at);
  parallel(s, [&](Index i, Index j) { s(i, j) = select(j < left, s(i, j), -inf); });
}

// One row of a result out of results [splits, dim] with their natural lse [splits]; returns the lse of all.
// Parts without keys have the lse −∞.
inline Expr merge_splits(const Tensor& results, const Tensor& lses, const Expr& splits, int dim,
                         const Tensor& out) {
  Var top = -inf, total = 0.0f;
  serial(splits, [&](Index s) { top = max(top, lses(s)); });
  Expr shift = select(top == -inf, 0, top);
  Fragment sum({dim}, f32, 0);
  serial(splits, [&](Index s) {
    Expr weight = exp(lses(s) - shift);
    total += weight;
    Fragment result({dim}, f32);
    copy(results.slice(s).at(0), result);
    parallel(sum, [&](Index d) { sum(d) += select(weight == 0, 0, result(d) * weight); });
  });
  Expr inverse = select(total == 0, 0, rcp(total));
  parallel(sum, [&](Index d) { sum(d) *= inverse; });
  copy(sum, out.at(0));
  return select(total == 0, -inf, shift + log(total));
}

// The formula: scores s(i) of n keys with values v(i, d). Without keys the output is 0, the lse −∞.
struct Attended {
  std::vector<double> out;
  double lse = -INFINITY;
};
template <class Score, class Value>
Attended attend(int n, int dim, Score score, Value value) {
  Attended result{std::vector<double>(static_cast<std::size_t>(dim))};
  if (n == 0) return result;
  std::vector<double> weights;
  double top = -INFINITY, total = 0;
  each(n, [&](int i) {
    weights.push_back(score(i));
    top = std::max(top, weights.back());
  });
  for (double& weight : weights) total += weight = std::exp(weight - top);
  result.lse = top + std::log(total);
  each(dim,
       [&](int d) { result.out[d] = sum_of(n, [&](int i) { return weights[i] * value(i, d); }) / total; });
  return result;
}

}  // namespace programs

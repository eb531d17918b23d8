// Pieces of programs over rows of features.
#pragma once
#include <tuple>

#include "tegula/lang.hpp"

namespace tegula::ops {

// 1 / sqrt(mean(x²) + eps) of every row of x [rows, features].
lang::Fragment root_mean_square_factors(const lang::Fragment& x, const lang::Expr& eps);

// total [n] = the sum of parts [blocks, n], added in their order by a grid of its own: sums over all blocks
// of a grid that are the same at every call.
void add_parts(const lang::Tensor& parts, const lang::Tensor& total);

// Sums of exponentials along a row that is read in pieces, each column of a piece for itself: one exponential
// for an element, whether it becomes the largest or not. Elements of -inf count as 0.
struct ExponentialSums {
  lang::Fragment top, sum;

  explicit ExponentialSums(int piece);
  void add(const lang::Fragment& x);
  // Once the row is over: the largest element, and the sum of exp(x - largest). `weighted` are sums of the same
  // columns to be scaled alike.
  struct Total {
    lang::Expr largest, sum;
    lang::Expr lse() const { return largest + log(sum); }
  };
  Total total();
};
// x [batch, rows, n] gives total [n], in the same order at every call.
struct RowSumKernel {
  DType type = f32;
  auto fields() const { return std::tuple(type); }
};
lang::Kernel row_sum_kernel(const RowSumKernel& c);

}  // namespace tegula::ops

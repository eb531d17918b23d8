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

// x [batch, rows, n] gives total [n], in the same order at every call.
struct RowSumKernel {
  DType type = f32;
  auto fields() const { return std::tuple(type); }
};
lang::Kernel row_sum_kernel(const RowSumKernel& c);

}  // namespace tegula::ops

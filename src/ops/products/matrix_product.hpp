// The tile program of products of matrices: of gemm and accumulate_gemm, and of operators that first bring
// their operands into such a form.
#pragma once
#include "ops/pieces/product_table.hpp"
#include "ops/products/epilogue.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// Computes an element of the result from the product; such functions are told apart by where they are.
using ElementFunction = lang::Expr (*)(const lang::Expr& x, const lang::Expr& row, const lang::Expr& column);
template <>
struct FieldOf<ElementFunction> {
  static constexpr std::size_t words = 1, members = 1;
  static void key(const ElementFunction& function, std::int64_t* words) {
    *words = reinterpret_cast<std::intptr_t>(function);
  }
  static std::string name(const ElementFunction& function) { return function == nullptr ? "" : "_epilogue"; }
};

struct GemmKernel {
  DType type = f32, out = f32;
  DType compute = f32;  // of the tiles that are multiplied
  bool transpose_a = false, transpose_b = false;
  bool pad_a = false, pad_b = false;  // copied first, to rows that the copy engine takes
  bool pad_out = false;               // its rows are written after sums that the copy engine stores
  // Written first along k as numbers of tf32, and for tf32x3 with what rounding leaves of them.
  bool prepare_a = false, prepare_b = false;
  ProductEpilogue epilogue = {};
  std::optional<DType> residual = {};
  bool gated = false;  // the activation of the first half of the columns times the second half
  ElementFunction function = nullptr;
  bool accumulates = false;  // the result is added to what out holds
  bool rescaled = false;     // the result has a factor
  Precision precision = Precision::ieee;
  bool f16_sums = false;  // of tiles of f16
  GemmTiles tiles = {};
  int tail_splits = 1;             // splits of k of the tiles of the last round of blocks
  std::optional<int> stages = {};  // of loads that run ahead, in blocks that have a processor alone

  auto fields() const {
    return std::tuple(type, compute, out, tiles, labelled("ta", transpose_a), labelled("tb", transpose_b),
                      labelled("pa", pad_a), labelled("pb", pad_b), labelled("pout", pad_out),
                      labelled("qa", prepare_a), labelled("qb", prepare_b), labelled("stages", stages),
                      labelled("tail", tail_splits > 1 ? std::optional(tail_splits) : std::nullopt), epilogue,
                      labelled("residual", residual), labelled("gated", gated), function,
                      labelled("accumulates", accumulates), labelled("rescaled", rescaled), precision,
                      labelled("f16_sums", f16_sums));
  }
};

// Arguments: a [batch, m, k] (transposed: [batch, k, m]), b [batch, k, n] (or [batch, n, k]), out [batch, m,
// n], bias and column_scale [n], row_scale [m], residual as out, and the scalars scale and out_scale,
// f32, where the instance has them; whole_tiles, i32, which are not divided, with tail_splits.
lang::Kernel gemm_kernel(const GemmKernel& instance);

}  // namespace tegula::ops

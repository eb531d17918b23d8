// Matrix products with an epilogue.
#pragma once
#include <optional>

#include "tegula/ops/products.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::lang {
class Expr;
}
namespace tegula::ops {

// Computes an element of the result from the product, in the tile language; row and column are those of the
// element.
using GemmEpilogue = lang::Expr (*)(const lang::Expr& x, const lang::Expr& row, const lang::Expr& column);

struct Gemm {
  TensorRef a = {}, b = {};                    // [m, k] and [k, n], or with a batch
  bool transpose_a = false;                    // a is [k, m]
  bool transpose_b = false;                    // b is [n, k]
  std::optional<TensorRef> bias = {};          // [n], f32, f16 or bf16, added before the activation
  std::optional<TensorRef> row_scale = {};     // f32 [m], factors of the rows, applied before the bias
  std::optional<TensorRef> column_scale = {};  // f32 [n], of the columns
  Activation activation = Activation::none;
  bool gated = false;  // the columns of b are n / 2 gates, then n / 2 values; the result has n / 2 columns
  GemmEpilogue epilogue = nullptr;  // for example a lambda without captures; applied after the activation
  std::optional<TensorRef> residual = {};  // of the result's shape, f32, f16 or bf16, added last
  double scale = 1;                        // of the product, before the bias: scale of a times scale of b
  double out_scale = 1;  // of the result, applied last: for fp8, the inverse of the result's scale
  std::optional<DType> out_dtype = {};    // a float; default: that of a and b, bf16 for fp8
  std::optional<DType> sum_dtype = {};    // f16: GPUs sum products of f16 in f16; default: f32
  Precision precision = Precision::ieee;  // of f32 products
  std::optional<TensorRef> out = {};      // preallocated output of the result's shape and dtype
  GemmTiles tiles = {};
  Target target = Target::automatic();
};

// (epilogue(activation(scale · row_scale · (a · b) · column_scale + bias)) + residual) · out_scale with a [m,
// k] or [batch, m, k] and b [k, n] or [batch, k, n]; a matrix without a batch is used with every batch of the
// other. a and b are of one dtype, f32, f16, bf16, e4m3 or e5m2, with stride 1 along rows or columns;
// products are summed in f32 and rounded once. With `sum_dtype` f16, tensor cores of GPUs round the sums of
// f16 products to f16 after every 16 products or fewer, and sums beyond 65504 are infinite; splits of k, and
// all that follows the sums, are f32, and other devices sum in f32. On Hopper products of fp8 are summed by
// the tensor cores, with fewer bits, at most 128 at a time; they are fast where both operands run along k, as
// a and transpose_b do. The result is [m, n], or [batch, m, n] if a or b has a batch. Gated, the activation
// is that of the first half of the columns, which multiplies the second. Wrong shapes, dtypes or options are
// an ArgumentError.
Tensor gemm(const TensorRef& a, const TensorRef& b, Gemm options = {});

struct AccumulateGemm {
  TensorRef sum = {};        // [m, n] or [batch, m, n], f32, f16 or bf16: updated in place
  TensorRef a = {}, b = {};  // as above
  bool transpose_a = false, transpose_b = false;  // a is [k, m], b is [n, k]
  double scale = 1;                               // of the product
  Precision precision = Precision::ieee;          // of f32 products
  GemmTiles tiles = {};
  Target target = Target::automatic();
};

// sum += scale · a · b, for example to accumulate gradients of weights in f32 over steps.
void accumulate_gemm(const TensorRef& sum, const TensorRef& a, const TensorRef& b,
                     AccumulateGemm options = {});

}  // namespace tegula::ops
TEGULA_API_END

// Matrix products with a bias and an activation.
#pragma once
#include <optional>

#include "tegula/ops/products.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::lang {
class Expr;
}
namespace tegula::ops {

// What becomes of an element of a product, in the language; row and column are its own.
using GemmEpilogue = lang::Expr (*)(const lang::Expr& x, const lang::Expr& row, const lang::Expr& column);

struct Gemm {
  TensorRef a = {}, b = {};                    // [m, k] and [k, n], or with a batch
  bool transpose_a = false;                    // a is [k, m]
  bool transpose_b = false;                    // b is [n, k]
  std::optional<TensorRef> bias = {};          // [n], f32, f16 or bf16, added before the activation
  std::optional<TensorRef> row_scale = {};     // f32 [m], factors of the rows, before the bias
  std::optional<TensorRef> column_scale = {};  // f32 [n], of the columns
  Activation activation = Activation::none;
  bool gated = false;  // columns of b are n / 2 gates and what they multiply: the result has half of them
  GemmEpilogue epilogue = nullptr;         // such as a lambda without captures; applied after the activation
  std::optional<TensorRef> residual = {};  // of the result's shape, f32, f16 or bf16, added last
  double scale = 1;                        // of the product, before the bias: that of a times that of b
  double out_scale = 1;                 // of the result, last: for fp8 the inverse of the result's own scale
  std::optional<DType> out_dtype = {};  // a float; that of a and b unless given, bf16 for fp8
  Precision precision = Precision::ieee;  // of products of f32
  std::optional<TensorRef> out = {};      // written instead of a new tensor; of the result's shape and dtype
  GemmTiles tiles = {};
  Target target = Target::automatic();
};

// (epilogue(activation(scale · row_scale · (a · b) · column_scale + bias)) + residual) · out_scale with a [m,
// k] or [batch, m, k] and b [k, n] or [batch, k, n]; a matrix without a batch is used with every batch of the
// other. a and b are of one dtype, f32, f16, bf16, e4m3 or e5m2, with stride 1 along rows or columns;
// products are summed in f32 and rounded once. On Hopper products of fp8 are summed by the tensor cores, with
// fewer bits, at most 128 at a time; they are fast where both operands lie along k, as a and transpose_b do.
// The result is [m, n], or [batch, m, n] if a or b has a batch. Gated, the activation is that of the first
// half of the columns, which multiplies the second. Wrong shapes, dtypes or options are an ArgumentError.
Tensor gemm(const TensorRef& a, const TensorRef& b, Gemm options = {});

struct AccumulateGemm {
  TensorRef sum = {};        // [m, n] or [batch, m, n], f32, f16 or bf16: written in place
  TensorRef a = {}, b = {};  // as above
  bool transpose_a = false, transpose_b = false;  // a is [k, m], b is [n, k]
  double scale = 1;                               // of the product
  Precision precision = Precision::ieee;          // of products of f32
  GemmTiles tiles = {};
  Target target = Target::automatic();
};

// sum += scale · a · b, as gradients of weights in f32 are added up over steps.
void accumulate_gemm(const TensorRef& sum, const TensorRef& a, const TensorRef& b,
                     AccumulateGemm options = {});

}  // namespace tegula::ops
TEGULA_API_END

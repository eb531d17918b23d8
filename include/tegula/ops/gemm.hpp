// Matrix products with a bias and an activation.
#pragma once
#include <optional>

#include "tegula/ops/products.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct GemmOptions {
  bool transpose_a = false;            // a is [k, m]
  bool transpose_b = false;            // b is [n, k]
  std::optional<TensorRef> bias = {};  // [n], f32, f16 or bf16, added before the activation
  Activation activation = Activation::none;
  double scale = 1;                     // of the product, before the bias: that of a times that of b
  std::optional<DType> out_dtype = {};  // f32, f16 or bf16; that of a and b unless given, bf16 for fp8
  std::optional<TensorRef> out = {};    // written instead of a new tensor; of the result's shape and dtype
  GemmTiles tiles = {};
  Target target = Target::automatic();
};

// activation(scale · a · b + bias) with a [m, k] or [batch, m, k] and b [k, n] or [batch, k, n]; a matrix
// without a batch is used with every batch of the other. a and b are of one dtype, f32, f16, bf16, e4m3 or
// e5m2, with stride 1 along rows or columns; products are summed in f32 and rounded once. On Hopper products
// of fp8 are summed by the tensor cores, with fewer bits, at most 128 at a time; they are fast if both
// operands are K-major, as a and transpose_b are. The result is [m, n], or [batch, m, n] if a or b has a
// batch. Wrong shapes, dtypes or options are an ArgumentError.
Tensor gemm(const TensorRef& a, const TensorRef& b, const GemmOptions& options = {});

}  // namespace tegula::ops
TEGULA_API_END

// 2:4 sparse matrices, two values of each four along a row, and their products.
#pragma once
#include <optional>

#include "tegula/ops/products.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct Compress24 {
  TensorRef a = {};                        // [m, k], f16, bf16, e4m3, e5m2 or i8; k is a multiple of 8
  std::optional<TensorRef> values = {};    // [m, k / 2], written instead of a new tensor
  std::optional<TensorRef> metadata = {};  // u8 [m, k / 8], alike
  Target target = Target::automatic();
};
struct Compressed24 {
  Tensor values;    // [m, k / 2]
  Tensor metadata;  // u8 [m, k / 8]
};

// The two elements of largest magnitude of each four along a row, those at a[i, 4 q] to a[i, 4 q + 3]: of
// equal ones the first, and a NaN before all numbers. They are values[i, 2 q] and values[i, 2 q + 1], in the
// order in which they stand, at the positions first < second of the four. Bits 4 (q mod 2) and 4 (q mod 2) +
// 1 of the byte metadata[i, q / 2] are the first position, the two bits above them the second. A matrix that
// has two zeros in each four is kept exactly. Wrong shapes or dtypes are an ArgumentError.
Compressed24 compress_24(const TensorRef& a, Compress24 options = {});

struct Gemm24 {
  TensorRef values = {}, metadata = {};  // of a [m, k], as compress_24 returns them; k is a multiple of 8
  TensorRef b = {};                      // [k, n], or [n, k]; of the values' dtype
  bool transpose_b = false;              // b is [n, k]
  bool transpose_out = false;            // the result is [n, m]
  std::optional<TensorRef> bias = {};    // of the result's columns, f32, f16 or bf16
  Activation activation = Activation::none;
  double scale = 1;                     // of the product, before the bias
  std::optional<DType> out_dtype = {};  // f32, f16 or bf16; that of b unless given, bf16 for 8 bits
  std::optional<TensorRef> out = {};    // written instead of a new tensor
  GemmTiles tiles = {};                 // splits are not taken
  Target target = Target::automatic();
};

// activation(scale · a · b + bias) where two of each four elements of a along k are 0: [m, n]. With
// transpose_out it is transposed, [n, m]: x · Wᵀ + bias for a sparse W is gemm_24 of W and x with transpose_b
// and transpose_out. Sums are f32, of i8 exact in i32. Metadata that compress_24 does not write (positions
// that do not increase) have no defined result, except four bits 0, which are positions 0 and 1. Fastest on
// Hopper where k is a multiple of 128, and for 8 bits with transpose_b. Wrong shapes, dtypes or options are
// an ArgumentError.
Tensor gemm_24(const TensorRef& values, const TensorRef& metadata, const TensorRef& b, Gemm24 options = {});

struct IntegerGemm24 {
  TensorRef values = {}, metadata = {}, b = {};  // i8 [m, k / 2], u8 [m, k / 8] and i8 [n, k]
  std::optional<TensorRef> out = {};             // written instead of a new tensor
  Target target = Target::automatic();
};

// a · bᵀ in i32 for such a matrix of i8, exact: i32 [m, n]. Sums beyond 2^31 wrap.
Tensor integer_gemm_24(const TensorRef& values, const TensorRef& metadata, const TensorRef& b,
                       IntegerGemm24 options = {});

}  // namespace tegula::ops
TEGULA_API_END

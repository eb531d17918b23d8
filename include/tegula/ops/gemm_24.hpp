// 2:4 sparse matrices (two values of every four along a row) and their products.
#pragma once
#include <optional>

#include "tegula/ops/products.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct Compress24 {
  TensorRef a = {};                        // [m, k], f16, bf16, e4m3, e5m2 or i8; k is a multiple of 8
  std::optional<TensorRef> values = {};    // [m, k / 2], preallocated output
  std::optional<TensorRef> metadata = {};  // u8 [m, k / 8], likewise
  Target target = Target::automatic();
};
struct Compressed24 {
  Tensor values;    // [m, k / 2]
  Tensor metadata;  // u8 [m, k / 8]
};

// Keeps the two elements of largest magnitude of every four along a row, a[i, 4 q] to a[i, 4 q + 3]; of equal
// elements the first, and a NaN before any number. They become values[i, 2 q] and values[i, 2 q + 1], in
// their original order, from positions first < second of the four. Bits 4 (q mod 2) and 4 (q mod 2) + 1 of
// the byte metadata[i, q / 2] are the first position, the next two bits the second. A matrix with two zeros
// in every four is represented exactly. Throws an ArgumentError for wrong shapes or dtypes.
Compressed24 compress_24(const TensorRef& a, Compress24 options = {});

struct Gemm24 {
  TensorRef values = {}, metadata = {};  // of a [m, k], as compress_24 returns them; k is a multiple of 8
  TensorRef b = {};                      // [k, n], or [n, k]; of the values' dtype
  bool transpose_b = false;              // b is [n, k]
  bool transpose_out = false;            // the result is [n, m]
  std::optional<TensorRef> bias = {};    // for the columns of the result, f32, f16 or bf16
  Activation activation = Activation::none;
  double scale = 1;                     // of the product, before the bias
  std::optional<DType> out_dtype = {};  // f32, f16 or bf16; default: that of b, bf16 for 8-bit types
  std::optional<TensorRef> out = {};    // preallocated output
  GemmTiles tiles = {};                 // splits are not supported
  Target target = Target::automatic();
};

// activation(scale · a · b + bias), where two of every four elements of a along k are 0: [m, n]. With
// transpose_out it is transposed, [n, m]: x · Wᵀ + bias for a sparse W is gemm_24 of W and x with transpose_b
// and transpose_out. Sums are f32; for i8, exact in i32. For metadata that compress_24 does not write
// (positions that do not increase) the result is undefined, except that four zero bits mean positions 0 and
// 1. Fastest on Hopper if k is a multiple of 128 and, for 8-bit types, with transpose_b. Throws an
// ArgumentError for wrong shapes, dtypes or options.
Tensor gemm_24(const TensorRef& values, const TensorRef& metadata, const TensorRef& b, Gemm24 options = {});

struct IntegerGemm24 {
  TensorRef values = {}, metadata = {}, b = {};  // i8 [m, k / 2], u8 [m, k / 8] and i8 [n, k]
  std::optional<TensorRef> out = {};             // preallocated output
  Target target = Target::automatic();
};

// a · bᵀ for such a matrix of i8, exactly, in i32: [m, n]. Sums beyond 2^31 wrap.
Tensor integer_gemm_24(const TensorRef& values, const TensorRef& metadata, const TensorRef& b,
                       IntegerGemm24 options = {});

}  // namespace tegula::ops
TEGULA_API_END

// Products of 8-bit floats with scales per block along the inner dimension.
#pragma once
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct ScaledGemm {
  TensorRef a = {}, b = {};              // [m, k] and [n, k], e4m3 or e5m2
  TensorRef scale_a = {}, scale_b = {};  // [m, blocks] and [n / rows_b, blocks]; f32, or u8: e8m0
  std::optional<TensorRef> c = {};       // [m, n], f32, f16 or bf16
  int rows_b = 128;                      // rows of b that share a scale: 128, or 1
  std::optional<DType> out_dtype = {};   // f32, f16 or bf16; default: bf16
  std::optional<TensorRef> out = {};     // preallocated output
  Target target = Target::automatic();
};

// c + Σ_g scale_a[i, g] · scale_b[j / rows_b, g] · (a[i, block g] · b[j, block g]ᵀ), where block g has
// columns 128 g to 128 g + 127, and the last one may be shorter: [m, n]. The products of each block are
// summed separately, scaled in f32, and added in f32. A u8 scale s is the power of two 2^(s − 127); 255 is
// NaN. Operands and scales may have any strides; the fastest are stride 1 along k for operands and along m
// for the scales of a. Throws an ArgumentError for wrong shapes, dtypes or options.
Tensor scaled_gemm(const TensorRef& a, const TensorRef& b, const TensorRef& scale_a, const TensorRef& scale_b,
                   ScaledGemm options = {});

}  // namespace tegula::ops
TEGULA_API_END

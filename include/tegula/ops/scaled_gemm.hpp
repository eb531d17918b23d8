// Products of 8-bit floats whose blocks along the inner dimension have scales.
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
  std::optional<DType> out_dtype = {};   // f32, f16 or bf16; bf16 unless given
  std::optional<TensorRef> out = {};     // written instead of a new tensor
  Target target = Target::automatic();
};

// c + Σ_g scale_a[i, g] · scale_b[j / rows_b, g] · (a[i, block g] · b[j, block g]ᵀ), where block g has the
// columns 128 g … 128 g + 127 and the last one may be short: [m, n]. Each block's products are summed by
// themselves, scaled in f32, and added in f32. Scales of the type u8 are powers of two, 2^(s − 127); 255 is
// NaN. Operands and scales may have any strides; they are fastest where k has stride 1, and scales of a where
// m has. Wrong shapes, dtypes or options are an ArgumentError.
Tensor scaled_gemm(const TensorRef& a, const TensorRef& b, const TensorRef& scale_a, const TensorRef& scale_b,
                   ScaledGemm options = {});

}  // namespace tegula::ops
TEGULA_API_END

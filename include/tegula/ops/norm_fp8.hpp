// Norms whose results are cast to e4m3 while they are in registers, as a product of 8 bits takes them.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct RmsNormFp8 {
  TensorRef x = {};                                     // [..., d], f32, f16 or bf16
  std::optional<TensorRef> residual = {}, weight = {};  // x's shape and dtype; [d], f32, f16 or bf16
  float eps = 1e-6f;                                    // positive
  bool power_of_two = false;                            // scales are rounded up to powers of two
  std::optional<TensorRef> out = {}, scale = {}, sum = {};
  Target target = Target::automatic();
};
struct LayerNormFp8 {
  TensorRef x = {};                                     // [..., d], f32, f16 or bf16
  std::optional<TensorRef> residual = {}, weight = {};  // x's shape and dtype; [d], f32, f16 or bf16
  std::optional<TensorRef> bias = {};                   // [d], f32, f16 or bf16
  float eps = 1e-5f;                                    // positive
  bool power_of_two = false;                            // scales are rounded up to powers of two
  std::optional<TensorRef> out = {}, scale = {}, sum = {};
  Target target = Target::automatic();
};
struct NormFp8Result {
  Tensor out;    // e4m3, of x's shape: the norm / scale
  Tensor scale;  // f32 [..., ceil(d/128)], as that of cast_fp8 by tokens
  Tensor sum;    // x + residual, of x's shape and dtype; no elements without a residual
};

// cast_fp8 of rms_norm, or layer_norm, of x, or of x + residual rounded to their dtype: the norm itself is
// not rounded to x's dtype in between. Wrong shapes, dtypes or options are an ArgumentError.
NormFp8Result rms_norm_fp8(const TensorRef& x, RmsNormFp8 options = {});
NormFp8Result layer_norm_fp8(const TensorRef& x, LayerNormFp8 options = {});

}  // namespace tegula::ops
TEGULA_API_END

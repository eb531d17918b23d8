// Products of groups of rows of 8-bit floats whose blocks along the inner dimension have scales.
#pragma once
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct ScaledGroupedGemm {
  TensorRef a = {};                      // [m, k] with offsets, [groups, m, k] else; e4m3 or e5m2
  TensorRef b = {};                      // [groups, n, k]
  TensorRef scale_a = {}, scale_b = {};  // [(groups,) m, blocks] and [groups, n / rows_b, blocks]; f32 or u8
  std::optional<TensorRef> bias = {};    // [groups, n], f32, f16 or bf16, added to the rows of a group
  std::optional<TensorRef> offsets =
      {};  // i32 [groups + 1]: group g has the rows offsets[g] … offsets[g + 1]
  std::optional<TensorRef> counts = {};  // i32 [groups]: rows of a group that count, all unless given
  int rows_b = 128;                      // rows of b that share a scale: 128, or 1
  int max_rows = 0;                      // a promise: the most rows of a group; 0: not known
  std::optional<DType> out_dtype = {};   // bf16 unless given
  std::optional<TensorRef> out = {};     // written instead of a new tensor
  Target target = Target::automatic();
};

// The scaled product (as scaled_gemm) of every group's rows with its matrix; groups are as in grouped_gemm.
Tensor scaled_grouped_gemm(const TensorRef& a, const TensorRef& b, const TensorRef& scale_a,
                           const TensorRef& scale_b, ScaledGroupedGemm options = {});

struct ScaledGroupedGemmWeights {
  TensorRef a = {}, dout = {};              // [m, k] and [m, n], e4m3 or e5m2
  TensorRef scale_a = {}, scale_dout = {};  // [m / 128, k] and [m / 128, n]; f32, or u8 with e8m0
  TensorRef offsets = {};                   // i32 [groups + 1]
  std::optional<TensorRef> c = {};          // [groups, k, n], f32, f16 or bf16
  bool aligned = false;                     // a promise: groups begin at multiples of 128
  int max_rows = 0;                         // a promise: the most rows of a group; 0: not known
  std::optional<DType> out_dtype = {};      // f32 unless given
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};

// c[g] + the scaled product a[rows of g]ᵀ · dout[rows of g], the gradient of matrices as
// grouped_gemm_weights: [groups, k, n]. Every column has a scale for each 128 rows of the whole tensor,
// whatever groups these belong to. Where the rows of a column lie side by side in both, and groups are
// aligned, tensor cores take operands as they lie; on Hopper others are brought into that order first.
Tensor scaled_grouped_gemm_weights(const TensorRef& a, const TensorRef& dout, const TensorRef& scale_a,
                                   const TensorRef& scale_dout, const TensorRef& offsets,
                                   ScaledGroupedGemmWeights options = {});

}  // namespace tegula::ops
TEGULA_API_END

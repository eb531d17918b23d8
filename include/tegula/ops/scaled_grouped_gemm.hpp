// Products of groups of rows of 8-bit floats with scales per block along the inner dimension.
#pragma once
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct ScaledGroupedGemm {
  TensorRef a = {};                      // [m, k] with offsets, otherwise [groups, m, k]; e4m3 or e5m2
  TensorRef b = {};                      // [groups, n, k]
  TensorRef scale_a = {}, scale_b = {};  // [(groups,) m, blocks] and [groups, n / rows_b, blocks]; f32 or u8
  std::optional<TensorRef> bias = {};    // [groups, n], f32, f16 or bf16, added to the rows of a group
  std::optional<TensorRef> offsets =
      {};  // i32 [groups + 1]: group g has rows offsets[g] to offsets[g + 1] − 1
  std::optional<TensorRef> counts = {};  // i32 [groups]: rows of each group that are used; default: all
  int rows_b = 128;                      // rows of b that share a scale: 128, or 1
  int max_rows = 0;                      // a promise: no group has more rows; 0: not known
  std::optional<DType> out_dtype = {};   // default: bf16
  std::optional<TensorRef> out = {};     // preallocated output
  Target target = Target::automatic();
};

// The scaled product (as scaled_gemm) of every group's rows with its matrix; groups are as in grouped_gemm.
Tensor scaled_grouped_gemm(const TensorRef& a, const TensorRef& b, const TensorRef& scale_a,
                           const TensorRef& scale_b, ScaledGroupedGemm options = {});

struct ScaledGroupedGemmWeights {
  TensorRef a = {}, dout = {};              // [m, k] and [m, n], e4m3 or e5m2
  TensorRef scale_a = {}, scale_dout = {};  // [m / 128, k] and [m / 128, n]; f32, or u8: e8m0
  TensorRef offsets = {};                   // i32 [groups + 1]
  std::optional<TensorRef> c = {};          // [groups, k, n], f32, f16 or bf16
  bool aligned = false;                     // a promise: groups begin at multiples of 128
  int max_rows = 0;                         // a promise: no group has more rows; 0: not known
  std::optional<DType> out_dtype = {};      // default: f32
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};

// c[g] + the scaled product a[rows of g]ᵀ · dout[rows of g], the gradient of the matrices as in
// grouped_gemm_weights: [groups, k, n]. Every column has one scale per 128 rows of the whole tensor, whatever
// groups these belong to. If both operands are contiguous along the rows and groups are aligned, tensor cores
// read the operands in place; otherwise, on Hopper, they are first copied into that order.
Tensor scaled_grouped_gemm_weights(const TensorRef& a, const TensorRef& dout, const TensorRef& scale_a,
                                   const TensorRef& scale_dout, const TensorRef& offsets,
                                   ScaledGroupedGemmWeights options = {});

}  // namespace tegula::ops
TEGULA_API_END

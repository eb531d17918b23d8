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

}  // namespace tegula::ops
TEGULA_API_END

// Products of groups of rows with 8-bit, 4-bit and 2-bit weights.
#pragma once
#include "tegula/ops/quantised_gemm.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct QuantisedGroupedGemm {
  TensorRef a = {};                           // [m, k] with offsets, otherwise [groups, m, k]; bf16 or f16
  TensorRef b = {};                           // [groups, n, bytes of a row]
  TensorRef scales = {};                      // [groups, blocks, n]
  std::optional<TensorRef> zeros = {};        // [groups, blocks, n]
  std::optional<TensorRef> bias = {};         // [groups, n], f32, f16 or bf16, added to the rows of a group
  std::optional<TensorRef> row_weights = {};  // f32 [m], or [groups, m]: factors of the rows of the result
  std::optional<TensorRef> offsets = {};      // i32 [groups + 1], as in grouped_gemm
  std::optional<TensorRef> counts = {};       // i32 [groups]
  WeightFormat format = WeightFormat::int4;
  bool packed = false;  // b is in the order of `packed_weights`
  int block = 128;      // weights along k that share a scale; 0: a whole row; mxfp4: 32, nvfp4: 16
  int max_rows = 0;     // a promise: no group has more rows; 0: not known
  std::optional<DType> out_dtype = {};  // default: that of a
  std::optional<TensorRef> out = {};    // preallocated output
  Target target = Target::automatic();
};

// row_weights · (a[rows of g] · W[g]ᵀ + bias[g]) for every group g, with weights as in quantised_gemm and
// groups as in grouped_gemm.
Tensor quantised_grouped_gemm(const TensorRef& a, const TensorRef& b, const TensorRef& scales,
                              QuantisedGroupedGemm options = {});

}  // namespace tegula::ops
TEGULA_API_END

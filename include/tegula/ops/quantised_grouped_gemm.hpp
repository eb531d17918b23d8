// Products of groups of rows with 8-bit, 4-bit and 2-bit weights.
#pragma once
#include "tegula/ops/quantised_gemm.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct QuantisedGroupedGemm {
  TensorRef a = {};  // [m, k] with offsets, [groups, m, k] else; bf16, f16, e4m3 or i8
  TensorRef b = {};                           // [groups, n, bytes of a row]
  TensorRef scales = {};                      // [groups, blocks, n]
  std::optional<TensorRef> zeros = {};        // [groups, blocks, n]
  std::optional<TensorRef> row_scale = {};    // f32 [m], or [groups, m]: factors of the rows of a
  std::optional<TensorRef> bias = {};         // [groups, n], f32, f16 or bf16, added to the rows of a group
  std::optional<TensorRef> row_weights = {};  // f32 [m], or [groups, m]: factors of the rows of the result
  std::optional<TensorRef> offsets = {};      // i32 [groups + 1], as in grouped_gemm
  std::optional<TensorRef> counts = {};       // i32 [groups]
  WeightFormat format = WeightFormat::int4;
  bool packed = false;  // b has the order of `packed_weights`
  int block = 128;      // weights along k with one scale; 0: a whole row; mxfp4: 32, nvfp4: 16
  int max_rows = 0;     // a promise: the most rows of a group; 0: not known
  std::optional<DType> out_dtype = {};  // that of a unless given, bf16 where that has 8 bits
  std::optional<TensorRef> out = {};    // written instead of a new tensor
  Target target = Target::automatic();
};

// row_weights · (row_scale · (a[rows of g] · W[g]ᵀ) + bias[g]) of every group g, with the weights of
// quantised_gemm and the groups of grouped_gemm.
Tensor quantised_grouped_gemm(const TensorRef& a, const TensorRef& b, const TensorRef& scales,
                              QuantisedGroupedGemm options = {});

}  // namespace tegula::ops
TEGULA_API_END

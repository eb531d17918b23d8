// The tile program of products of groups of rows with quantised weights.
#pragma once
#include "ops/grouped_gemm/kernel.hpp"
#include "ops/quantised_gemm/weights.hpp"

namespace tegula::ops {

struct QuantisedGroupedGemmKernel {
  DType type = bf16, compute = f32, out = bf16;
  GroupedForm form = {};
  QuantisedWeights weights = {};
  std::optional<DType> bias = {};
  bool row_weights = false, row_scale = false;
  GroupPadding padding = {};
  QuantisedTile tile = {};
  auto fields() const {
    return std::tuple(type, labelled("tiles", compute), labelled("out", out), form, weights,
                      labelled("bias", bias), labelled("weighted", row_weights), tile,
                      labelled("of_rows", row_scale), padding);
  }
};

QuantisedGroupedGemmKernel planned(QuantisedGroupedGemmKernel kernel, const GroupedProduct& product,
                                   const BoundCall& call);
// Arguments: those of a grouped product; b, scales and zeros as a QuantisedMatrix has them, of every group;
// row_weights and row_scale.
lang::Kernel quantised_grouped_gemm_program(const QuantisedGroupedGemmKernel& instance);

// What a kernel knows of weights that a call gives, and these as it reads them.
struct GivenWeights {
  QuantisedWeights weights;
  TensorRef b, scales;
  std::optional<TensorRef> zeros = {};

  // `block` is that of the option, 0 where rows have one scale.
  GivenWeights(WeightFormat format, bool packed, int block, const TensorRef& stored, const TensorRef& factors,
               const std::optional<TensorRef>& zero_points);
};

}  // namespace tegula::ops

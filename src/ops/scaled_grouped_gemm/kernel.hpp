// The tile program of scaled products of groups of rows.
#pragma once
#include "ops/grouped_gemm/kernel.hpp"

namespace tegula::ops {

struct ScaledGroupedGemmKernel {
  DType type = e4m3, compute = f32, scale = f32, out = bf16;
  GroupedForm form = {};
  bool by_block_a = false, by_block_b = false;  // scales are [blocks, rows] in memory
  std::optional<DType> bias = {};
  GroupPadding padding = {};
  int rows_b = 128, m = 64, n = 64;
  auto fields() const {
    return std::tuple(type, compute, labelled("s", scale), labelled("out", out), form,
                      labelled("sa", by_block_a), labelled("sb", by_block_b), labelled("bias", bias), padding,
                      labelled("rows", rows_b), joined("t", m, n));
  }
};

ScaledGroupedGemmKernel planned(ScaledGroupedGemmKernel kernel, const GroupedProduct& product,
                                const BoundCall& call);
// Arguments: those of a grouped product, b [groups, n, k], and scale_a and scale_b in the order that the
// instance says.
lang::Kernel scaled_grouped_gemm_program(const ScaledGroupedGemmKernel& instance);

}  // namespace tegula::ops

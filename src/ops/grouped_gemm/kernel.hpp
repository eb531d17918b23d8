// The tile program of products of groups of rows, for operators that multiply so.
#pragma once
#include "ops/pieces/product_table.hpp"
#include "ops/products/group_padding.hpp"
#include "ops/schema/bound.hpp"

namespace tegula::ops {

struct GroupedGemmKernel {
  DType type = f32, compute = f32, out = f32;
  GroupedForm form = {};
  bool transpose_b = false;
  std::optional<DType> bias = {};
  Precision precision = Precision::ieee;
  GroupPadding padding = {};
  int m = 64, n = 64, k = 64;
  auto fields() const {
    return std::tuple(type, compute, labelled("out", out), form, padding, labelled("tb", transpose_b),
                      labelled("bias", bias), precision, joined("t", m, n), k);
  }
};

// What is multiplied: rows of the groups as plans suppose them, times [k, n].
struct GroupedProduct {
  std::int64_t groups = 1, rows = 1, n = 1, k = 1;
};

// The instance with the tiles for such a product.
GroupedGemmKernel planned(GroupedGemmKernel kernel, const GroupedProduct& product, const BoundCall& call);
// The same of tensors that are launched on; pads where the copy engine does not take them.
GroupedGemmKernel planned(GroupedGemmKernel kernel, const GroupedProduct& product, Launch& launch,
                          const TensorRef& a, const TensorRef& b, const TensorRef& out);
// Arguments: a [m, k] or [groups, m, k], b [groups, k, n] or [groups, n, k], bias [groups, n], out as a, and
// those of a GroupedWalk.
lang::Kernel grouped_gemm_program(const GroupedGemmKernel& instance);

// The same of the gradient of the matrices, [groups, k, n]: sums over rows. `c` is added.
struct GroupedWeightsKernel {
  DType type = f32, compute = f32, out = f32;
  std::optional<DType> c = {};
  bool accumulates = false;  // the result is added to what out holds
  Precision precision = Precision::ieee;
  GroupPadding padding = {};
  int m = 64, n = 64, k = 64;
  auto fields() const {
    return std::tuple(type, compute, labelled("out", out), labelled("c", c),
                      labelled("accumulates", accumulates), padding, precision, joined("t", m, n), k);
  }
};
GroupedWeightsKernel planned_weights(GroupedWeightsKernel kernel, const GroupedProduct& product,
                                     const BoundCall& call);
// The same of tensors that are launched on; pads where the copy engine does not take them.
GroupedWeightsKernel planned_weights(GroupedWeightsKernel kernel, const GroupedProduct& product,
                                     Launch& launch, const TensorRef& a, const TensorRef& dout,
                                     const TensorRef& out);
lang::Kernel grouped_weights_program(const GroupedWeightsKernel& instance);

}  // namespace tegula::ops

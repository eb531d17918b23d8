// Products of groups of rows, each group with its own matrix, as in mixtures of experts.
#pragma once
#include <optional>

#include "tegula/ops/products.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct GroupedGemm {
  TensorRef a = {};                    // [m, k] with offsets, otherwise [groups, m, k]; f32, f16 or bf16
  TensorRef b = {};                    // [groups, k, n], or [groups, n, k] with transpose_b
  std::optional<TensorRef> bias = {};  // [groups, n], f32, f16 or bf16, added to the rows of a group
  std::optional<TensorRef> offsets =
      {};  // i32 [groups + 1]: group g has rows offsets[g] to offsets[g + 1] − 1
  std::optional<TensorRef> counts = {};  // i32 [groups]: rows of each group that are used; default: all
  bool transpose_b = false;
  Precision precision = Precision::ieee;  // of f32 products
  int max_rows = 0;                       // a promise: no group has more rows; 0: not known
  std::optional<DType> out_dtype = {};    // default: that of a
  std::optional<TensorRef> out = {};      // preallocated output
  Target target = Target::automatic();
};

// The rows of each group times its matrix, plus its bias: [m, n] if offsets divide contiguous rows, [groups,
// m, n] if each group has space for m rows. A group may have any number of rows, including none. Offsets in
// host memory are checked by the host; offsets and counts on a device are never read by the host but asserted
// by the kernel. Rows past a group's count are not written. Throws an ArgumentError for wrong shapes, dtypes
// or options.
Tensor grouped_gemm(const TensorRef& a, const TensorRef& b, GroupedGemm options = {});

struct GroupedGemmWeights {
  TensorRef a = {}, dout = {};            // [m, k] and [m, n], f32, f16 or bf16
  TensorRef offsets = {};                 // i32 [groups + 1]
  std::optional<TensorRef> c = {};        // [groups, k, n], f32, f16 or bf16
  Precision precision = Precision::ieee;  // of f32 products
  int max_rows = 0;                       // a promise, as above
  std::optional<DType> out_dtype = {};    // default: f32
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};

// c[g] + a[rows of g]ᵀ · dout[rows of g]: the gradient of b of grouped_gemm, [groups, k, n]. Without c, the
// gradient of a group without rows is zero.
Tensor grouped_gemm_weights(const TensorRef& a, const TensorRef& dout, const TensorRef& offsets,
                            GroupedGemmWeights options = {});

struct AccumulateGroupedGemmWeights {
  TensorRef sum = {};           // [groups, k, n], f32, f16 or bf16: updated in place
  TensorRef a = {}, dout = {};  // as above
  TensorRef offsets = {};
  int max_rows = 0;
  Target target = Target::automatic();
};

// sum[g] += a[rows of g]ᵀ · dout[rows of g].
void accumulate_grouped_gemm_weights(const TensorRef& sum, const TensorRef& a, const TensorRef& dout,
                                     const TensorRef& offsets, AccumulateGroupedGemmWeights options = {});

}  // namespace tegula::ops
TEGULA_API_END

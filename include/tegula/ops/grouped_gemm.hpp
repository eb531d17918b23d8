// Products of groups of rows, each with a matrix of its own, as mixtures of experts have them.
#pragma once
#include <optional>

#include "tegula/ops/products.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct GroupedGemm {
  TensorRef a = {};                    // [m, k] with offsets, [groups, m, k] else; f32, f16 or bf16
  TensorRef b = {};                    // [groups, k, n], or [groups, n, k] with transpose_b
  std::optional<TensorRef> bias = {};  // [groups, n], f32, f16 or bf16, added to the rows of a group
  std::optional<TensorRef> offsets =
      {};  // i32 [groups + 1]: group g has the rows offsets[g] … offsets[g + 1]
  std::optional<TensorRef> counts = {};  // i32 [groups]: rows of a group that count, all unless given
  bool transpose_b = false;
  Precision precision = Precision::ieee;  // of products of f32
  int max_rows = 0;                       // a promise: the most rows of a group; 0: not known
  std::optional<DType> out_dtype = {};    // that of a unless given
  std::optional<TensorRef> out = {};      // written instead of a new tensor
  Target target = Target::automatic();
};

// The rows of each group times its matrix, plus its bias: [m, n] if offsets divide rows that lie one after
// the other, [groups, m, n] if each group has room for m rows. A group may have any number of rows, including
// none. The host checks offsets in its own memory, and never reads offsets or counts that lie on a device,
// which asserts those that it reads. Rows past a group's count are not written. Wrong shapes, dtypes or
// options are an ArgumentError.
Tensor grouped_gemm(const TensorRef& a, const TensorRef& b, GroupedGemm options = {});

struct GroupedGemmWeights {
  TensorRef a = {}, dout = {};            // [m, k] and [m, n], f32, f16 or bf16
  TensorRef offsets = {};                 // i32 [groups + 1]
  std::optional<TensorRef> c = {};        // [groups, k, n], f32, f16 or bf16
  Precision precision = Precision::ieee;  // of products of f32
  int max_rows = 0;                       // a promise, as above
  std::optional<DType> out_dtype = {};    // f32 unless given
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};

// c[g] + a[rows of g]ᵀ · dout[rows of g]: the gradient of b of grouped_gemm, [groups, k, n]. Without c that
// of a group without rows is zero.
Tensor grouped_gemm_weights(const TensorRef& a, const TensorRef& dout, const TensorRef& offsets,
                            GroupedGemmWeights options = {});

struct AccumulateGroupedGemmWeights {
  TensorRef sum = {};           // [groups, k, n], f32, f16 or bf16: written in place
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

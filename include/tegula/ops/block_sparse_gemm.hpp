// Matrix products over the blocks that a mask selects.
#pragma once
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct BlockSparseGemm {
  TensorRef a = {}, b = {};                        // [m, k] and [k, n], f32, f16 or bf16
  TensorRef mask = {};                             // bool [m / block_m, n / block_n, k / block_k]
  bool transpose_b = false;                        // b is [n, k]
  int block_m = 128, block_n = 128, block_k = 64;  // multiples of 16
  std::optional<DType> out_dtype = {};             // default: that of a
  std::optional<TensorRef> out = {};               // preallocated output
  Target target = Target::automatic();
};

// a · b, summed over the blocks of m, n and k that the mask selects: [m, n]. Other blocks are neither read
// nor multiplied; the result is 0 where no block is selected. The last blocks may be shorter. Throws an
// ArgumentError for wrong shapes, dtypes or options.
Tensor block_sparse_gemm(const TensorRef& a, const TensorRef& b, const TensorRef& mask,
                         BlockSparseGemm options = {});

}  // namespace tegula::ops
TEGULA_API_END

// Products of 8-bit integers.
#pragma once
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct IntegerGemm {
  TensorRef a = {}, b = {};           // i8 [m, k] and [n, k]
  std::optional<TensorRef> c = {};    // i32 [m, n]
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};

// c + a · bᵀ, exactly, in i32: [m, n]. Sums beyond 2^31 wrap. Throws an ArgumentError for wrong shapes or
// dtypes.
Tensor integer_gemm(const TensorRef& a, const TensorRef& b, IntegerGemm options = {});

}  // namespace tegula::ops
TEGULA_API_END

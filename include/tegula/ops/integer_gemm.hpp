// Products of 8-bit integers.
#pragma once
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct IntegerGemm {
  TensorRef a = {}, b = {};           // i8 [m, k] and [n, k]
  std::optional<TensorRef> c = {};    // i32 [m, n]
  std::optional<TensorRef> out = {};  // written instead of a new tensor
  Target target = Target::automatic();
};

// c + a · bᵀ in i32, exact: i32 [m, n]. Sums beyond 2^31 wrap. Wrong shapes or dtypes are an ArgumentError.
Tensor integer_gemm(const TensorRef& a, const TensorRef& b, IntegerGemm options = {});

}  // namespace tegula::ops
TEGULA_API_END

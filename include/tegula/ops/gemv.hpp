// Matrices times vectors.
#pragma once
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct Gemv {
  TensorRef a = {}, x = {};             // [m, k] or [batch, m, k]; [k] or [batch, k]
  bool transpose_a = false;             // a is [k, m]
  double scale = 1;                     // of the product
  std::optional<DType> out_dtype = {};  // default: that of x, bf16 for fp8
  std::optional<TensorRef> out = {};    // preallocated output
  Target target = Target::automatic();
};

// scale · a · x: [m], or [batch, m] if a or x has a batch; the other is broadcast. Each may be f32, f16,
// bf16, e4m3 or e5m2. Sums are f32 and bitwise reproducible. The time is that of reading a. Throws an
// ArgumentError for wrong shapes, dtypes or options.
Tensor gemv(const TensorRef& a, const TensorRef& x, Gemv options = {});

}  // namespace tegula::ops
TEGULA_API_END

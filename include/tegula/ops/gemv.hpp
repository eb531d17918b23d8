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
  std::optional<DType> out_dtype = {};  // that of x unless given, bf16 for fp8
  std::optional<TensorRef> out = {};    // written instead of a new tensor
  Target target = Target::automatic();
};

// scale · a · x: [m], or [batch, m] if a or x has a batch; the other is used with every one. Both may be f32,
// f16, bf16, e4m3 or e5m2, each its own; products are summed in f32, in the same order in every run. The time
// is that of reading a. Wrong shapes, dtypes or options are an ArgumentError.
Tensor gemv(const TensorRef& a, const TensorRef& x, Gemv options = {});

}  // namespace tegula::ops
TEGULA_API_END

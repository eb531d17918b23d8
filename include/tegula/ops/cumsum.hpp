// Running sums of rows.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct Cumsum {
  TensorRef x = {};  // [..., n], f32, f16 or bf16
  std::optional<TensorRef> cu_seqlens =
      {};                             // [segments + 1], i32: the start of each segment of a row, then n
  bool reverse = false;               // sum from the right
  bool exclusive = false;             // without the element itself
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};

// out[..., i] = the sum of x[..., j] over j <= i of the same segment; of x's shape and dtype, summed in f32.
Tensor cumsum(const TensorRef& x, Cumsum options = {});

}  // namespace tegula::ops
TEGULA_API_END

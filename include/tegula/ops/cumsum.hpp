// Running sums of rows.
#pragma once
#include "tegula/runtime.hpp"

namespace tegula::ops {

struct Cumsum {
  TensorRef x = {};                          // [..., n], f32, f16 or bf16
  std::optional<TensorRef> cu_seqlens = {};  // [segments + 1], i32: where segments of a row begin, and n
  bool reverse = false;                      // sums from the right
  bool exclusive = false;                    // without the element itself
  std::optional<TensorRef> out = {};         // written instead of a new tensor
  Target target = Target::automatic();
};

// out[..., i] = the sum of x[..., j] over j <= i of the same segment; of x's shape and dtype, summed in f32.
Tensor cumsum(const TensorRef& x, Cumsum options = {});

}  // namespace tegula::ops

// Results of linear attention divided by the sums of their weights, which stand in a last column.
#pragma once
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

struct NormalizeKernel {
  DType type = f32;
  int d_v = 64;  // without the last column
  auto fields() const { return std::tuple(type, d_v); }
};

// sums [batch, tokens, heads, d_v + 1] give out [batch, tokens, heads, d_v].
lang::Kernel normalize_kernel(const NormalizeKernel& c);
// sums and dout give dsums, of the type of out.
lang::Kernel normalize_gradient_kernel(const NormalizeKernel& c);

inline constexpr float least_weight = 1e-10f;  // added to sums of weights

}  // namespace tegula::ops

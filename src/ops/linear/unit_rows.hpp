// Rows divided by their norms, x / √(sum of x² + 1e-6), and the gradient of that.
#pragma once
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

struct UnitRowsKernel {
  DType type = f32;
  int d = 64;
  auto fields() const { return std::tuple(type, d); }
};

// x [batch, tokens, heads, d] gives y of its shape.
lang::Kernel unit_rows_kernel(const UnitRowsKernel& c);
// x and dy, in f32, give dx.
lang::Kernel unit_rows_gradient_kernel(const UnitRowsKernel& c);

inline constexpr float least_norm = 1e-6f;  // added to sums of squares

}  // namespace tegula::ops

// A checked product: what is multiplied, by which kernel.
#pragma once
#include "ops/gemm/kernel.hpp"

namespace tegula::ops {

struct GemmCall {
  GemmKernel kernel;
  TensorRef a, b;  // [batch, …]
  Shape out_shape;
};

// An ArgumentError if the arguments are wrong.
GemmCall prepare_gemm(const TensorRef& a, const TensorRef& b, const GemmOptions& options);

}  // namespace tegula::ops

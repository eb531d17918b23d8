// The tile program of matrix products.
#pragma once
#include <optional>
#include <string>

#include "tegula/lang.hpp"
#include "tegula/ops/gemm.hpp"

namespace tegula::ops {

struct GemmKernel {
  DType type = f32, out = f32;
  DType compute = f32;  // of the tiles that are multiplied
  bool transpose_a = false, transpose_b = false, scaled = false;
  std::optional<DType> bias = {};
  Activation activation = Activation::none;
  GemmTiles tiles;

  std::string name() const;
};

std::string_view name_of(Activation activation);

// Arguments: a [batch, m, k] (transposed: [batch, k, m]), b [batch, k, n] (or [batch, n, k]), out [batch, m,
// n], bias [n] and the scalar scale, f32, where the instance has them.
lang::Kernel gemm_kernel(const GemmKernel& instance);

}  // namespace tegula::ops

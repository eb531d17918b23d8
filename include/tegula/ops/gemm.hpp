// Matrix products with a bias and an activation.
#pragma once
#include <optional>

#include "tegula/runtime.hpp"

namespace tegula::ops {

// gelu is x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))); silu is x / (1 + exp(−x)).
enum class Activation { none, relu, gelu, silu };

// Extents of a tile in elements, at most 4096; 0 leaves the choice to the plan.
struct GemmTiles {
  int m = 0, n = 0, k = 0;
};

struct GemmOptions {
  bool transpose_a = false;            // a is [k, m]
  bool transpose_b = false;            // b is [n, k]
  std::optional<TensorRef> bias = {};  // [n], f32, f16 or bf16, added before the activation
  Activation activation = Activation::none;
  std::optional<DType> out_dtype = {};  // that of a and b unless given
  std::optional<TensorRef> out = {};    // written instead of a new tensor; of the result's shape and dtype
  GemmTiles tiles = {};
  Target target = Target::automatic();
};

// activation(a · b + bias) with a [m, k] or [batch, m, k] and b [k, n] or [batch, k, n]; a matrix without a
// batch is used with every batch of the other. a and b are of one dtype, f32, f16 or bf16, in host memory
// with any strides; products are summed in f32 and rounded once. The result is [m, n], or [batch, m, n] if a
// or b has a batch. Wrong shapes, dtypes or options are an ArgumentError.
Tensor gemm(const TensorRef& a, const TensorRef& b, const GemmOptions& options = {});

}  // namespace tegula::ops

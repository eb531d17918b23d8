// Hadamard transforms of rows.
#pragma once
#include <vector>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct Hadamard {
  TensorRef x = {};  // [..., n], f32, f16 or bf16; n = 2^k, 12·2^k, 20·2^k or 28·2^k, up to 32768
  float scale = 1;   // of the result; 1/√n makes the transform orthogonal
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};

// scale · (H_m ⊗ H_2^k) x for n = m · 2^k, of x's shape and dtype, computed in f32. H_2^k is Sylvester's
// matrix, H_12 and H_20 are Paley's first construction, from the squares modulo 11 and 19; H_28 is his
// second, from the squares modulo 13.
Tensor hadamard(const TensorRef& x, Hadamard options = {});

// The gradient of x for dout: the transposed transform.
Tensor hadamard_backward(const TensorRef& dout, const TensorRef& x, Hadamard options = {});

// The signs of H_m for m = 12, 20 or 28, row by row.
std::vector<std::vector<int>> hadamard_signs(int m);

}  // namespace tegula::ops
TEGULA_API_END

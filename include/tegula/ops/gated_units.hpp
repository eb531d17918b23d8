// Gated linear units: the activation of the first half of every row times the second half, and the gradients.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct SiluAndMul {
  TensorRef x = {};                   // [..., 2 d], f32, f16 or bf16
  std::optional<TensorRef> out = {};  // [..., d], preallocated output
  Target target = Target::automatic();
};
struct GeluAndMul {
  TensorRef x = {};
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};
struct ReluAndMul {
  TensorRef x = {};
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};

// The unit used in gpt-oss.
struct SwigluOai {
  TensorRef x = {};
  float alpha = 1.702f, limit = 7;
  bool interleaved = false;  // x[..., 2 j] is a gate and x[..., 2 j + 1] its value; otherwise as above
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};
// The units above, as an option of operators with a unit between two products.
enum class GatedUnit { silu, gelu, relu, swiglu_oai };

// activation(x[..., :d]) · x[..., d:], of x's dtype; computed in f32. silu is x / (1 + exp(−x)), gelu is
// x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))).
Tensor silu_and_mul(const TensorRef& x, SiluAndMul options = {});
Tensor gelu_and_mul(const TensorRef& x, GeluAndMul options = {});
Tensor relu_and_mul(const TensorRef& x, ReluAndMul options = {});
// g / (1 + exp(−alpha · g)) · (v + 1), where g is the gate, clamped to at most `limit`, and v the value,
// clamped to ±limit.
Tensor swiglu_oai(const TensorRef& x, SwigluOai options = {});

// The gradient of x, [..., 2 d], for dout, the gradient of the result.
Tensor silu_and_mul_backward(const TensorRef& dout, const TensorRef& x, SiluAndMul options = {});
Tensor gelu_and_mul_backward(const TensorRef& dout, const TensorRef& x, GeluAndMul options = {});
Tensor relu_and_mul_backward(const TensorRef& dout, const TensorRef& x, ReluAndMul options = {});
Tensor swiglu_oai_backward(const TensorRef& dout, const TensorRef& x, SwigluOai options = {});

}  // namespace tegula::ops
TEGULA_API_END

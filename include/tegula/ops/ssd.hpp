// State space duality: the scan of Mamba-2, and its gradients.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct Ssd {
  TensorRef x = {};                 // [batch, tokens, heads, p], packed [tokens, heads, p]; f32, f16 or bf16
  TensorRef dt = {};                // [batch, tokens, heads], f32, f16 or bf16: step sizes
  TensorRef A = {};                 // f32 [heads], at most 0
  TensorRef B = {}, C = {};         // [batch, tokens, groups, n]: heads is a multiple of groups
  std::optional<TensorRef> D = {};  // f32 [heads]: D · x is added to the result
  std::optional<TensorRef> z = {};  // as x: the result is multiplied by silu(z)
  std::optional<TensorRef> dt_bias = {};        // f32 [heads], added to dt
  std::optional<TensorRef> initial_state = {};  // f32 [batch, heads, p, n]
  std::optional<TensorRef> cu_seqlens = {};     // i32 [sequences + 1]: packed sequences
  std::int64_t max_seqlen = 0;                  // a promise: no packed sequence has more tokens
  bool dt_softplus = false;                     // dt becomes log(1 + exp(dt + dt_bias))
  bool output_final_state = false;
  std::optional<TensorRef> out = {}, final_state = {};  // preallocated outputs
  Target target = Target::automatic();
};

struct SsdResult {
  Tensor out, final_state;  // of x's shape and dtype; f32 [batch, heads, p, n], empty unless requested
};

// For each head, every token updates the state S [p, n], S ← e^(dt · A) S + dt · x Bᵀ, and out = S C + D · x,
// times silu(z) if z is given. Wrong shapes, dtypes or options are an ArgumentError; dt · A above 0 is a
// ProgramError.
SsdResult ssd(const TensorRef& x, const TensorRef& dt, const TensorRef& A, const TensorRef& B,
              const TensorRef& C, Ssd options = {});

struct SsdGradients {
  Tensor dx, ddt, dA, dB, dC, dD, dz, ddt_bias, dinitial_state;  // empty if the input is not given
};

// The gradients for dout, the gradient of out, and dfinal_state, that of final_state if given. Bitwise
// reproducible. Throws an ArgumentError for wrong shapes, dtypes or options.
SsdGradients ssd_backward(const TensorRef& dout, const TensorRef& x, const TensorRef& dt, const TensorRef& A,
                          const TensorRef& B, const TensorRef& C, Ssd options = {},
                          const TensorRef& dfinal_state = {});

}  // namespace tegula::ops
TEGULA_API_END

// State space duality: the scan of Mamba-2, and its gradients.
#pragma once
#include "tegula/runtime.hpp"

namespace tegula::ops {

struct Ssd {
  TensorRef x = {};         // [batch, tokens, heads, p], packed [tokens, heads, p]; f32, f16 or bf16
  TensorRef dt = {};        // [batch, tokens, heads], f32, f16 or bf16: widths of steps
  TensorRef A = {};         // f32 [heads], at most 0
  TensorRef B = {}, C = {};  // [batch, tokens, groups, n]: heads are a multiple of the groups
  std::optional<TensorRef> D = {};              // f32 [heads]: shares of x that are added to the results
  std::optional<TensorRef> z = {};              // as x: results are multiplied by silu(z)
  std::optional<TensorRef> dt_bias = {};        // f32 [heads], added to dt
  std::optional<TensorRef> initial_state = {};  // f32 [batch, heads, p, n]
  std::optional<TensorRef> cu_seqlens = {};     // i32 [sequences + 1]: packed sequences
  std::int64_t max_seqlen = 0;                  // a promise: the most tokens of a packed sequence
  bool dt_softplus = false;                     // dt becomes log(1 + exp(dt + dt_bias))
  bool output_final_state = false;
  std::optional<TensorRef> out = {}, final_state = {};  // written instead of new tensors
  Target target = Target::automatic();
};

struct SsdResult {
  Tensor out, final_state;  // of x's shape and dtype; f32 [batch, heads, p, n], empty unless wanted
};

// For each head the state S [p, n] is S ← e^(dt · A) S + dt · x Bᵀ at a token, and out = S C + D · x, times
// silu(z) where z is given. Wrong shapes, dtypes or options are an ArgumentError; dt · A above 0 is an error
// of the call.
SsdResult ssd(const TensorRef& x, const TensorRef& dt, const TensorRef& A, const TensorRef& B,
              const TensorRef& C, Ssd options = {});

struct SsdGradients {
  Tensor dx, ddt, dA, dB, dC, dD, dz, ddt_bias, dinitial_state;  // empty for what is not given
};

// The gradients for dout of out, and for dfinal_state of final_state if it is given; the same at every call.
// Wrong shapes, dtypes or options are an ArgumentError.
SsdGradients ssd_backward(const TensorRef& dout, const TensorRef& x, const TensorRef& dt, const TensorRef& A,
                          const TensorRef& B, const TensorRef& C, Ssd options = {},
                          const TensorRef& dfinal_state = {});

}  // namespace tegula::ops

// Kimi delta attention: the gated delta rule with a decay per feature, and its gradients.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct Kda {
  TensorRef q = {}, k = {};  // [batch, tokens, key heads, d], packed [tokens, key heads, d]; f32, f16 or bf16
  TensorRef v = {};          // [batch, tokens, heads, d_v]: heads is a multiple of key heads
  TensorRef g = {};          // f32 [batch, tokens, heads, d]: logarithms of the decays, −5 to 0
  TensorRef beta = {};       // [batch, tokens, heads], f32, f16 or bf16: the writing strength, 0 to 1
  std::optional<TensorRef> initial_state = {};  // f32 [batch, heads, d, d_v]
  std::optional<TensorRef> cu_seqlens = {};     // i32 [sequences + 1]: packed sequences
  std::int64_t max_seqlen = 0;                  // a promise: no packed sequence has more tokens
  std::optional<float> scale = {};              // scale of the results; default 1/√d
  bool qk_l2norm = false;                       // q and k are divided by √(sum of squares + 1e-6)
  bool output_final_state = false;
  std::optional<TensorRef> out = {}, final_state = {};  // preallocated outputs
  Target target = Target::automatic();
};

struct KdaResult {
  Tensor out, final_state;  // [batch, tokens, heads, d_v] of v's dtype; f32, empty unless requested
};

// For each head, the state S [d, d_v] decays per feature, S ← Diag(e^g) S; then S ← S + k (beta · (v − Sᵀ
// k))ᵀ, and out = scale · Sᵀ q. Keys should have norms of at most about 1; otherwise use qk_l2norm. Calls
// with up to 8 tokens are computed token by token, others in chunks of 16 tokens, over which a feature decays
// by a factor of at least e^−80. Wrong shapes, dtypes or options are an ArgumentError; gates above 0 or below
// −5 are a ProgramError.
KdaResult kda(const TensorRef& q, const TensorRef& k, const TensorRef& v, const TensorRef& g,
              const TensorRef& beta, Kda options = {});

struct KdaGradients {
  Tensor dq, dk, dv, dg, dbeta, dinitial_state;  // of the inputs' dtypes; empty if the input is not given
};

// The gradients for dout, the gradient of out, and dfinal_state, that of final_state if given. Bitwise
// reproducible. Throws an ArgumentError for wrong shapes, dtypes or options.
KdaGradients kda_backward(const TensorRef& dout, const TensorRef& q, const TensorRef& k, const TensorRef& v,
                          const TensorRef& g, const TensorRef& beta, Kda options = {},
                          const TensorRef& dfinal_state = {});

}  // namespace tegula::ops
TEGULA_API_END

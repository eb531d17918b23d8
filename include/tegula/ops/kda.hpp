// Kimi delta attention: the gated delta rule with a decay for each feature, and its gradients.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct Kda {
  TensorRef q = {}, k = {};  // [batch, tokens, key heads, d], packed [tokens, key heads, d]; f32, f16 or bf16
  TensorRef v = {};          // [batch, tokens, heads, d_v]: heads are a multiple of the key heads
  TensorRef g = {};          // f32 [batch, tokens, heads, d]: logarithms of decays, −5 to 0
  TensorRef beta = {};       // [batch, tokens, heads], f32, f16 or bf16: how much is written, 0 to 1
  std::optional<TensorRef> initial_state = {};  // f32 [batch, heads, d, d_v]
  std::optional<TensorRef> cu_seqlens = {};     // i32 [sequences + 1]: packed sequences
  std::int64_t max_seqlen = 0;                  // a promise: the most tokens of a packed sequence
  std::optional<float> scale = {};              // of the results; 1/√d
  bool qk_l2norm = false;                       // q and k are divided by √(sum of squares + 1e-6)
  bool output_final_state = false;
  std::optional<TensorRef> out = {}, final_state = {};  // written instead of new tensors
  Target target = Target::automatic();
};

struct KdaResult {
  Tensor out, final_state;  // [batch, tokens, heads, d_v] of v's dtype; f32, empty unless wanted
};

// For each head the state S [d, d_v] fades by features, S ← Diag(e^g) S, then S ← S + k (beta · (v − Sᵀ k))ᵀ,
// and out = scale · Sᵀ q. Keys should have norms of at most about 1, or qk_l2norm. Calls of up to 8 tokens
// are computed token by token, others by chunks of 16, in which features fade by e^−80 at most. Wrong shapes,
// dtypes or options are an ArgumentError; gates above 0 or below −5 an error of the call.
KdaResult kda(const TensorRef& q, const TensorRef& k, const TensorRef& v, const TensorRef& g,
              const TensorRef& beta, Kda options = {});

struct KdaGradients {
  Tensor dq, dk, dv, dg, dbeta, dinitial_state;  // of the inputs' dtypes; empty for what is not given
};

// The gradients for dout of out, and for dfinal_state of final_state if it is given; the same at every call.
// Wrong shapes, dtypes or options are an ArgumentError.
KdaGradients kda_backward(const TensorRef& dout, const TensorRef& q, const TensorRef& k, const TensorRef& v,
                          const TensorRef& g, const TensorRef& beta, Kda options = {},
                          const TensorRef& dfinal_state = {});

}  // namespace tegula::ops
TEGULA_API_END

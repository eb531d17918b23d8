// The gated delta rule of linear attention, and its gradients.
#pragma once
#include "tegula/runtime.hpp"

namespace tegula::ops {

struct GatedDeltaRule {
  TensorRef q = {}, k = {};  // [batch, tokens, key heads, d], packed [tokens, key heads, d]; f32, f16 or bf16
  TensorRef v = {};          // [batch, tokens, heads, d_v]: heads are a multiple of the key heads
  TensorRef beta = {};       // [batch, tokens, heads], f32, f16 or bf16: how much is written, 0 to 1
  std::optional<TensorRef> g = {};              // f32 [batch, tokens, heads]: logarithms of decays, at most 0
  std::optional<TensorRef> initial_state = {};  // f32 [batch, heads, d, d_v]
  std::optional<TensorRef> cu_seqlens = {};     // i32 [sequences + 1]: packed sequences
  std::int64_t max_seqlen = 0;                  // a promise: the most tokens of a packed sequence
  std::optional<float> scale = {};              // of the results; 1/√d
  bool qk_l2norm = false;                       // q and k are divided by √(sum of squares + 1e-6)
  bool output_final_state = false;
  std::optional<TensorRef> out = {}, final_state = {};  // written instead of new tensors
  Target target = Target::automatic();
};

struct GatedDeltaRuleResult {
  Tensor out, final_state;  // [batch, tokens, heads, d_v] of v's dtype; f32, empty unless wanted
};

// For each head the state S [d, d_v] fades, S ← e^g S, then what k finds in it is replaced by v, by the share
// beta: S ← S + k (beta · (v − Sᵀ k))ᵀ, and out = scale · Sᵀ q. Keys should have norms of at most about 1, or
// qk_l2norm. Calls of up to 8 tokens are computed token by token, others by chunks of 64. Wrong shapes,
// dtypes or options are an ArgumentError; gates above 0 an error of the call.
GatedDeltaRuleResult gated_delta_rule(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                      const TensorRef& beta, GatedDeltaRule options = {});

struct GatedDeltaRuleGradients {
  Tensor dq, dk, dv, dbeta, dg, dinitial_state;  // of the inputs' dtypes; empty for what is not given
};

// The gradients for dout of out, and for dfinal_state of final_state if it is given; the same at every call.
// Wrong shapes, dtypes or options are an ArgumentError.
GatedDeltaRuleGradients gated_delta_rule_backward(const TensorRef& dout, const TensorRef& q,
                                                  const TensorRef& k, const TensorRef& v,
                                                  const TensorRef& beta, GatedDeltaRule options = {},
                                                  const TensorRef& dfinal_state = {});

}  // namespace tegula::ops

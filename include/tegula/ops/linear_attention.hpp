// Causal linear attention, with decays or without, and its gradients.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct LinearAttention {
  TensorRef q = {}, k = {};  // [batch, tokens, key heads, d], packed [tokens, key heads, d]; f32, f16 or bf16
  TensorRef v = {};          // [batch, tokens, heads, d_v]: heads are a multiple of the key heads
  std::optional<TensorRef> g = {};              // f32 [batch, tokens, heads]: logarithms of decays, at most 0
  std::optional<TensorRef> g_gamma = {};        // f32 [heads]: of decays that all tokens have
  std::optional<TensorRef> initial_state = {};  // f32 [batch, heads, d, d_v], or d_v + 1 if normalised
  std::optional<TensorRef> cu_seqlens = {};     // i32 [sequences + 1]: packed sequences
  std::int64_t max_seqlen = 0;                  // a promise: the most tokens of a packed sequence
  std::optional<float> scale = {};              // of the products; 1/√d
  bool normalize = false;                       // results are divided by the sums of their weights
  bool output_final_state = false;
  std::optional<TensorRef> out = {}, final_state = {};  // written instead of new tensors
  Target target = Target::automatic();
};

struct LinearAttentionResult {
  Tensor out, final_state;  // [batch, tokens, heads, d_v] of v's dtype; f32, empty unless wanted
};

// For each head the state S [d, d_v] is S ← e^(g + g_gamma) S + k vᵀ at a token, and out = scale · Sᵀ q:
// linear attention without decays, retention with g_gamma, and gated linear attention with one gate for a
// head with g. With `normalize` out is divided by the same sums of values 1, whose state is the last column.
// Calls of up to 8 tokens are computed token by token, others by chunks of 64. Wrong shapes, dtypes or
// options are an ArgumentError; gates above 0 an error of the call.
LinearAttentionResult linear_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                       LinearAttention options = {});

// g_gamma of known models, f32 [heads]. Retention: log(1 − 2^(−5 − h)). Lightning attention: −(8 / heads) (h
// + 1) (1 − layer / layers), so that later layers of a model, counted from 0, forget less. Other numbers of
// heads or layers are an ArgumentError.
Tensor retention_decays(std::int64_t heads);
Tensor lightning_decays(std::int64_t heads, std::int64_t layer, std::int64_t layers);

struct LinearAttentionGradients {
  Tensor dq, dk, dv, dg, dg_gamma, dinitial_state;  // empty for what is not given
};

// The gradients for dout of out, and for dfinal_state of final_state if it is given; the same at every call.
// Wrong shapes, dtypes or options are an ArgumentError.
LinearAttentionGradients linear_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                   const TensorRef& k, const TensorRef& v,
                                                   LinearAttention options = {},
                                                   const TensorRef& dfinal_state = {});

}  // namespace tegula::ops
TEGULA_API_END

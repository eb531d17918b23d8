// Causal linear attention, with or without decays, and its gradients.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct LinearAttention {
  TensorRef q = {}, k = {};  // [batch, tokens, key heads, d], packed [tokens, key heads, d]; f32, f16 or bf16
  TensorRef v = {};          // [batch, tokens, heads, d_v]: heads is a multiple of key heads
  std::optional<TensorRef> g = {};        // f32 [batch, tokens, heads]: logarithms of the decays, at most 0
  std::optional<TensorRef> g_gamma = {};  // f32 [heads]: the same for decays shared by all tokens
  std::optional<TensorRef> initial_state = {};  // f32 [batch, heads, d, d_v], or d_v + 1 if normalised
  std::optional<TensorRef> cu_seqlens = {};     // i32 [sequences + 1]: packed sequences
  std::int64_t max_seqlen = 0;                  // a promise: no packed sequence has more tokens
  std::optional<float> scale = {};              // scale of the scores; default 1/√d
  bool normalize = false;                       // divide results by the sums of their weights
  bool output_final_state = false;
  bool g_gamma_gradient = true;  // of linear_attention_backward: whether dg_gamma is wanted
  std::optional<TensorRef> out = {}, final_state = {};  // preallocated outputs
  Target target = Target::automatic();
};

struct LinearAttentionResult {
  Tensor out, final_state;  // [batch, tokens, heads, d_v] of v's dtype; f32, empty unless requested
};

// For each head, every token updates the state S [d, d_v], S ← e^(g + g_gamma) S + k vᵀ, and out = scale · Sᵀ
// q. Without decays this is linear attention, with g_gamma retention, and with g gated linear attention with
// one gate per head. With `normalize`, out is divided by the same sum taken over values of 1, whose state is
// the last column. Calls with up to 8 tokens are computed token by token, others in chunks of 64 tokens.
// Wrong shapes, dtypes or options are an ArgumentError; gates above 0 are a ProgramError.
LinearAttentionResult linear_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                       LinearAttention options = {});

// The g_gamma of published models, f32 [heads]. Retention: log(1 − 2^(−5 − h)). Lightning attention: −(8 /
// heads) (h + 1) (1 − layer / layers), so that later layers of a model, counted from 0, forget less. Throws
// an ArgumentError for other numbers of heads or layers.
Tensor retention_decays(std::int64_t heads);
Tensor lightning_decays(std::int64_t heads, std::int64_t layer, std::int64_t layers);

struct LinearAttentionGradients {
  Tensor dq, dk, dv, dg, dg_gamma, dinitial_state;  // empty if the input is not given, or not wanted
};

// The gradients for dout, the gradient of out, and dfinal_state, that of final_state if given. Bitwise
// reproducible. Throws an ArgumentError for wrong shapes, dtypes or options.
LinearAttentionGradients linear_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                   const TensorRef& k, const TensorRef& v,
                                                   LinearAttention options = {},
                                                   const TensorRef& dfinal_state = {});

}  // namespace tegula::ops
TEGULA_API_END

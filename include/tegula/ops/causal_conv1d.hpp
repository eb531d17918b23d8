// Short causal convolutions of channels along tokens, and their gradients.
#pragma once
#include "tegula/runtime.hpp"

namespace tegula::ops {

struct CausalConv1d {
  TensorRef x = {};                             // [batch, tokens, d], packed [tokens, d]; f32, f16 or bf16
  TensorRef weight = {};                        // [d, width], f32, f16 or bf16
  std::optional<TensorRef> bias = {};           // [d]
  std::optional<TensorRef> initial_state = {};  // [batch, d, width − 1]: what stands before the first token
  std::optional<TensorRef> cu_seqlens = {};     // i32 [sequences + 1]: packed sequences
  std::int64_t max_seqlen = 0;                  // a promise: the most tokens of a packed sequence
  bool silu = false;                            // x / (1 + exp(−x)) of the sums
  bool output_final_state = false;
  std::optional<TensorRef> out = {}, final_state = {};  // written instead of new tensors
  Target target = Target::automatic();
};

struct CausalConv1dResult {
  Tensor out, final_state;  // of x's shape; [batch, d, width − 1], empty unless wanted
};

// out(t, c) = silu(bias(c) + sum over w of weight(c, w) · x(t − width + 1 + w, c)) for each channel c, computed
// in f32. Tokens before the first are those of initial_state, or zeros; final_state is what the next call
// takes as its initial_state, so that a call with one token is a step. Of x's dtype. width is 2 to 8. Wrong
// shapes, dtypes or options are an ArgumentError.
CausalConv1dResult causal_conv1d(const TensorRef& x, const TensorRef& weight, CausalConv1d options = {});

struct CausalConv1dGradients {
  Tensor dx, dweight, dbias, dinitial_state;  // of x's dtype, and f32; empty for what is not given
};

// The gradients for dout of out, and for dfinal_state of final_state if it is given. Sums over tokens are the
// same at every call. Wrong shapes, dtypes or options are an ArgumentError.
CausalConv1dGradients causal_conv1d_backward(const TensorRef& dout, const TensorRef& x,
                                             const TensorRef& weight, CausalConv1d options = {},
                                             const TensorRef& dfinal_state = {});

}  // namespace tegula::ops

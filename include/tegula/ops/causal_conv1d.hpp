// Short causal convolutions of channels along tokens, and their gradients.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct CausalConv1d {
  TensorRef x = {};                             // [batch, tokens, d], packed [tokens, d]; f32, f16 or bf16
  TensorRef weight = {};                        // [d, width], f32, f16 or bf16
  std::optional<TensorRef> bias = {};           // [d]
  std::optional<TensorRef> initial_state = {};  // [batch, d, width − 1]: the inputs before the first token
  std::optional<TensorRef> cu_seqlens = {};     // i32 [sequences + 1]: packed sequences
  std::int64_t max_seqlen = 0;                  // a promise: no packed sequence has more tokens
  bool silu = false;                            // apply x / (1 + exp(−x)) to the sums
  bool output_final_state = false;
  std::optional<TensorRef> out = {}, final_state = {};  // preallocated outputs
  Target target = Target::automatic();
};

struct CausalConv1dResult {
  Tensor out, final_state;  // of x's shape; [batch, d, width − 1], empty unless requested
};

// out(t, c) = silu(bias(c) + sum over w of weight(c, w) · x(t − width + 1 + w, c)) for each channel c,
// computed in f32. Inputs before the first token come from initial_state, or are zeros; final_state is the
// initial_state of the next call, so a call with one token is a decoding step. The result has x's dtype.
// width is 2 to 8. Throws an ArgumentError for wrong shapes, dtypes or options.
CausalConv1dResult causal_conv1d(const TensorRef& x, const TensorRef& weight, CausalConv1d options = {});

struct CausalConv1dGradients {
  Tensor dx, dweight, dbias, dinitial_state;  // of x's dtype, and f32; empty if the input is not given
};

// The gradients for dout, the gradient of out, and dfinal_state, that of final_state if given. Bitwise
// reproducible. Throws an ArgumentError for wrong shapes, dtypes or options.
CausalConv1dGradients causal_conv1d_backward(const TensorRef& dout, const TensorRef& x,
                                             const TensorRef& weight, CausalConv1d options = {},
                                             const TensorRef& dfinal_state = {});

}  // namespace tegula::ops
TEGULA_API_END

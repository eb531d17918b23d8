// Attention over compressed entries, the coarse branch of native sparse attention (Yuan et al., 2025), and
// its gradients.
#pragma once
#include "tegula/ops/attention.hpp"
#include "tegula/ops/attention_backward.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct NsaCompressedOptions {
  Layout layout = Layout::bshd;
  // Entry n stands for the tokens n · stride … n · stride + length − 1, as nsa_compress makes them.
  int length = 32, stride = 16;
  // Tokens that the entries are made of, as many as queries with 0. Query i stands at position i +
  // (key_tokens − queries), and sees the entries all of whose tokens stand at its position or before.
  std::int64_t key_tokens = 0;
  std::optional<float> scale = {};  // 1/√d unless given
  // Packed sequences of tokens: q is [tokens, heads, d], and k and v have the rows that nsa_compress gives.
  std::optional<TensorRef> cu_seqlens = {};
  std::int64_t max_seqlen = 0;                  // a promise: the most tokens of a sequence
  std::optional<TensorRef> out = {}, lse = {};  // written instead of new tensors
  Target target = Target::automatic();
};

// softmax(scale · q kᵀ) v over the entries that a query sees: q [batch, queries, heads, d], k [batch,
// entries, kv_heads, d], v [batch, entries, kv_heads, d_v]; dtypes, groups of heads and results are those of
// `attention`. The first queries, which see no entry, have output 0 and lse −∞. Wrong shapes, dtypes or
// options are an ArgumentError.
AttentionResult nsa_compressed_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                         const NsaCompressedOptions& options = {});

struct NsaCompressedBackwardOptions {
  // Gradient of lse, f32 in its shape; not looked at where lse is −∞.
  std::optional<TensorRef> dlse = {};
  std::optional<TensorRef> dq = {}, dk = {}, dv = {};  // written instead of new tensors
};

struct NsaCompressedGradients {
  Tensor dq, dk, dv;  // as q, k, v
};

// The gradients of sum(dout · out) + sum(dlse · lse), where out and lse are the results of
// nsa_compressed_attention(q, k, v, options). Equal bits in every run.
NsaCompressedGradients nsa_compressed_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                         const TensorRef& k, const TensorRef& v,
                                                         const TensorRef& out, const TensorRef& lse,
                                                         const NsaCompressedOptions& options = {},
                                                         const NsaCompressedBackwardOptions& gradients = {});

}  // namespace tegula::ops
TEGULA_API_END

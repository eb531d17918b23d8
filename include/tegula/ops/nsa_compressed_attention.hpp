// Attention over compressed entries, the coarse branch of native sparse attention (Yuan et al., 2025), and
// its gradients.
#pragma once
#include "tegula/ops/attention.hpp"
#include "tegula/ops/attention_backward.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct NsaCompressedOptions {
  Layout layout = Layout::bshd;
  // Entry n stands for tokens n · stride to n · stride + length − 1, as in nsa_compress.
  int length = 32, stride = 16;
  // The number of tokens from which the entries are computed; 0: the number of queries. Query i is at
  // position i + (key_tokens − queries) and sees the entries all of whose tokens are at or before its
  // position.
  std::int64_t key_tokens = 0;
  std::optional<float> scale = {};  // scale of the scores; default 1/√d
  // Packed sequences of tokens: q is [tokens, heads, d], and the rows of k and v are those of nsa_compress.
  std::optional<TensorRef> cu_seqlens = {};
  std::int64_t max_seqlen = 0;                  // a promise: no sequence has more tokens
  std::optional<TensorRef> out = {}, lse = {};  // preallocated outputs
  Target target = Target::automatic();
};

// softmax(scale · q kᵀ) v over the entries that a query sees: q [batch, queries, heads, d], k [batch,
// entries, kv_heads, d], v [batch, entries, kv_heads, d_v]; dtypes, grouped heads and results are as in
// `attention`. The first queries, which see no entry, have output 0 and lse −∞. Throws an ArgumentError for
// wrong shapes, dtypes or options.
AttentionResult nsa_compressed_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                         const NsaCompressedOptions& options = {});

struct NsaCompressedBackwardOptions {
  // Gradient of lse, f32 and of the same shape; ignored where lse is −∞.
  std::optional<TensorRef> dlse = {};
  std::optional<TensorRef> dq = {}, dk = {}, dv = {};  // preallocated outputs
};

struct NsaCompressedGradients {
  Tensor dq, dk, dv;  // as q, k, v
};

// The gradients of sum(dout · out) + sum(dlse · lse), where out and lse are the results of
// nsa_compressed_attention(q, k, v, options). Bitwise reproducible.
NsaCompressedGradients nsa_compressed_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                         const TensorRef& k, const TensorRef& v,
                                                         const TensorRef& out, const TensorRef& lse,
                                                         const NsaCompressedOptions& options = {},
                                                         const NsaCompressedBackwardOptions& gradients = {});

}  // namespace tegula::ops
TEGULA_API_END

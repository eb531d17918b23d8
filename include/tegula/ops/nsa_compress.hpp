// Means of overlapping windows of tokens: the compressed keys and values of native sparse attention (Yuan et
// al., 2025).
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct NsaCompress {
  TensorRef x = {};
  Layout layout = Layout::bshd;
  // Entry n is the mean of tokens n · stride to n · stride + length − 1, all of which exist. Both are from 1
  // to 2^20, and stride is at most length.
  int length = 32, stride = 16;
  // Packed sequences, across which no window extends: x is [tokens, heads, d], and sequence i consists of
  // tokens cu_seqlens[i] to cu_seqlens[i + 1] − 1 (i32 [sequences + 1]).
  std::optional<TensorRef> cu_seqlens = {};
  std::int64_t max_seqlen = 0;        // a promise: no sequence has more tokens; 0: not known
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};

// The entries of every head of x [batch, tokens, heads, d], f32, f16 or bf16: [batch, entries, heads, d],
// with one entry per whole window. For packed sequences, [tokens / stride, heads, d]: the entries of the
// sequence that begins at token t start at row t / stride, and all other rows are 0. Sums are f32. Throws an
// ArgumentError for wrong shapes, dtypes or options.
Tensor nsa_compress(const TensorRef& x, NsaCompress options = {});

// The gradient of x for dout, the gradient of the entries, with the shape and dtype of x.
Tensor nsa_compress_backward(const TensorRef& dout, const TensorRef& x, NsaCompress options = {});

}  // namespace tegula::ops
TEGULA_API_END

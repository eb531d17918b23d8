// Means of overlapping windows of tokens: the compressed keys and values of native sparse attention (Yuan et
// al., 2025).
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct NsaCompress {
  TensorRef x = {};
  Layout layout = Layout::bshd;
  // Entry n is the mean of the tokens n · stride … n · stride + length − 1, all of which exist. From 1 to
  // 2^20, and no stride is longer than the windows.
  int length = 32, stride = 16;
  // Packed sequences, whose windows do not leave them: x is [tokens, heads, d], and sequence i has the tokens
  // cu_seqlens[i] … cu_seqlens[i + 1] − 1 (i32 [sequences + 1]).
  std::optional<TensorRef> cu_seqlens = {};
  std::int64_t max_seqlen = 0;        // a promise: the most tokens of a sequence; 0 where it is not known
  std::optional<TensorRef> out = {};  // written instead of a new tensor
  Target target = Target::automatic();
};

// The entries of every head of x [batch, tokens, heads, d], f32, f16 or bf16: [batch, entries, heads, d] with
// as many entries as there are whole windows. Packed, it is [tokens / stride, heads, d]: the entries of the
// sequence that begins at token t stand from t / stride on, and rows that no sequence fills are 0. Sums are
// f32. Wrong shapes, dtypes or options are an ArgumentError.
Tensor nsa_compress(const TensorRef& x, NsaCompress options = {});

// The gradient of x for dout, that of the entries, in the shape and the dtype of x.
Tensor nsa_compress_backward(const TensorRef& dout, const TensorRef& x, NsaCompress options = {});

}  // namespace tegula::ops
TEGULA_API_END

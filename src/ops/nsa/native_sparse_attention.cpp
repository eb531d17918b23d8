#include "tegula/ops/native_sparse_attention.hpp"

#include "tegula/ops/nsa_compress.hpp"
#include "tegula/ops/nsa_compressed_attention.hpp"
#include "tegula/ops/nsa_gated_attention.hpp"
#include "tegula/ops/nsa_select.hpp"

namespace tegula::ops {

namespace {

// What the operators' options have in common.
template <class Op>
Op with_common(const NativeSparseOptions& options) {
  Op op;
  op.layout = options.layout;
  op.length = options.length, op.stride = options.stride;
  op.cu_seqlens = options.cu_seqlens, op.max_seqlen = options.max_seqlen;
  op.target = options.target;
  return op;
}

NsaGatedOptions selected_options(const NativeSparseOptions& options) {
  NsaGatedOptions selected;
  selected.layout = options.layout;
  selected.block_size = options.block_size;
  selected.window = options.window;
  selected.scale = options.scale;
  selected.cu_seqlens_q = selected.cu_seqlens_k = options.cu_seqlens;
  selected.max_seqlen_q = selected.max_seqlen_k = options.max_seqlen;
  selected.target = options.target;
  return selected;
}

}  // namespace

Tensor native_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                               const TensorRef& gates, const NativeSparseOptions& options) {
  const auto compressed = [&](const std::optional<TensorRef>& given, const TensorRef& x) {
    return given ? Tensor::adopt(*given, nullptr) : nsa_compress(x, with_common<NsaCompress>(options));
  };
  const Tensor keys = compressed(options.compressed_k, k), values = compressed(options.compressed_v, v);
  const std::int64_t tokens =
      options.cu_seqlens ? 0 : k.size(k.rank() == 4 && options.layout == Layout::bhsd ? 2 : 1);
  auto coarse = with_common<NsaCompressedOptions>(options);
  coarse.key_tokens = tokens, coarse.scale = options.scale;
  const AttentionResult seen = nsa_compressed_attention(q, keys, values, coarse);
  auto choice = with_common<NsaSelect>(options);
  choice.key_tokens = tokens, choice.scale = options.scale;
  choice.block_size = options.block_size;
  choice.first_blocks = options.first_blocks, choice.local_blocks = options.local_blocks;
  const Tensor blocks = nsa_select(q, keys, seen.lse, options.count, choice);
  NsaGatedOptions last = selected_options(options);
  last.out = options.out;
  return nsa_gated_attention(q, k, v, blocks, seen.out, gates, last).out;
}

}  // namespace tegula::ops

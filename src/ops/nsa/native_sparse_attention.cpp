#include "tegula/ops/native_sparse_attention.hpp"

#include <algorithm>

#include "ops/schema/table.hpp"
#include "tegula/ops/nsa_compress.hpp"
#include "tegula/ops/nsa_compressed_attention.hpp"
#include "tegula/ops/nsa_decode.hpp"
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

// Whether one operator, which reads every compressed key once for both branches, is the fast way: the table
// of nsa_decode says for which calls it is.
bool is_decoded(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                const NativeSparseOptions& options) {
  if (options.cu_seqlens || q.rank() != 4 || k.rank() != 4 || v.rank() != 4) return false;
  const int tokens = options.layout == Layout::bhsd ? 2 : 1, heads = 3 - tokens;
  static const OperatorSchema& table = find_schema("nsa_decode");
  std::vector<std::int64_t> values(table.positions());
  const auto value = [&](const char* name) -> std::int64_t& {
    return values[static_cast<std::size_t>(table.position_of(name))];
  };
  value("queries") = q.size(tokens), value("keys") = k.size(tokens);
  value("group") = q.size(heads) / std::max<std::int64_t>(k.size(heads), 1);
  value("d") = q.size(3), value("d_v") = v.size(3);
  value("block_size") = options.block_size;
  const auto fast = std::find_if(table.derived.begin(), table.derived.end(),
                                 [](const NamedExpression& each) { return each.name == "fast"; });
  return fast->value.evaluate(values.data()) != 0;
}

NsaDecode decode_options(const NativeSparseOptions& options) {
  NsaDecode decode;
  decode.layout = options.layout;
  decode.length = options.length, decode.stride = options.stride;
  decode.block_size = options.block_size, decode.count = options.count;
  decode.first_blocks = options.first_blocks, decode.local_blocks = options.local_blocks;
  decode.window = options.window, decode.scale = options.scale;
  decode.out = options.out, decode.target = options.target;
  return decode;
}

}  // namespace

Tensor native_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                               const TensorRef& gates, const NativeSparseOptions& options) {
  const auto compressed = [&](const std::optional<TensorRef>& given, const TensorRef& x) {
    return given ? Tensor::adopt(*given, nullptr) : nsa_compress(x, with_common<NsaCompress>(options));
  };
  const Tensor keys = compressed(options.compressed_k, k), values = compressed(options.compressed_v, v);
  if (is_decoded(q, k, v, options)) return nsa_decode(q, k, v, keys, values, gates, decode_options(options));
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

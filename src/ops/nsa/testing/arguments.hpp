// Arguments of attention over selected blocks, of the rows of a test's table: extents, `options`, `type`, and
// whether `counts` are given, lists are `per_query_head` and sequences `packed`.
#pragma once
#include "ops/testing/operators.hpp"

namespace tegula::ops {

template <class Row>
Shape shape_of(const Row& row, std::int64_t tokens, std::int64_t heads, std::int64_t last) {
  if (row.packed) return {tokens, heads, last};
  if (row.options.layout == Layout::bhsd) return {row.batch, heads, tokens, last};
  return {row.batch, tokens, heads, last};
}

template <class Row>
Shape vector_shape(const Row& row) {
  return row.packed ? Shape{row.heads, row.tokens} : Shape{row.batch, row.heads, row.tokens};
}

// Lists with gaps, repetitions, entries that name no block or a future one, and no order.
template <class Row>
Tensor random_list(const Row& row, std::int64_t entries, std::int64_t high) {
  const std::int64_t heads = row.per_query_head ? row.heads : row.kv_heads;
  return Tensor::random_integers(shape_of(row, row.tokens, heads, entries), i32, 5, -2, high);
}

// Among values that must not be read.
struct SelectedArguments {
  Planted q, k, v, indices, counts;
  Tensor fences_q = Tensor::from<std::int32_t>({0, 7, 7, 40, 41}),
         fences_k = Tensor::from<std::int32_t>({0, 20, 25, 25, 61});
  NsaSelectedOptions options;

  template <class Row>
  explicit SelectedArguments(const Row& row)
      : q(Tensor::random_normal(shape_of(row, row.tokens, row.heads, row.dim), row.type, 1)),
        k(Tensor::random_normal(shape_of(row, row.keys, row.kv_heads, row.dim), row.type, 2)),
        v(Tensor::random_normal(shape_of(row, row.keys, row.kv_heads, row.dim_v), row.type, 3)),
        indices(random_list(row, row.entries, row.keys / row.options.block_size + 3)),
        counts(random_list(row, 1, row.entries + 2).select(row.packed ? 2 : 3, 0)),
        options(row.options) {
    if (row.counts) options.block_counts = counts.inside;
    if (row.packed) {
      options.cu_seqlens_q = fences_q, options.cu_seqlens_k = fences_k;
      options.max_seqlen_q = 33, options.max_seqlen_k = 36;
    }
  }
};

}  // namespace tegula::ops

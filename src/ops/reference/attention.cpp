#include <array>

#include "ops/reference/problem.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops::reference {

namespace {

using std::int64_t;

// Whether a query at `position` sees key j.
bool in_window(const AttentionOptions& options, int64_t position, int64_t j) {
  if (options.left >= 0 && j < position - options.left) return false;
  const int64_t right = options.causal ? 0 : options.right;
  return right < 0 || j <= position + right;
}

Problem dense(const TensorRef& q, const TensorRef& k, const TensorRef& v, const AttentionOptions& options,
              DType steps) {
  return {Inputs(q, k, v, options.layout),
          options.cu_seqlens_q,
          options.cu_seqlens_k,
          options.sinks,
          softmax_of(options.scale, q.size(-1), options.softcap, steps),
          [options](const Part& part) {
            return [options, shift = part.shift()](int64_t i, int64_t j) -> double {
              return in_window(options, i + shift, j);
            };
          }};
}

bool chosen(const BlockSparseOptions& options, std::array<int64_t, 3> row, int64_t block) {
  const auto [b, h, i] = row;
  if (options.mask) return options.mask->get({b, h, i, block}) != 0;
  int64_t count = options.indices->size(3);
  if (options.counts) count = std::min(count, static_cast<int64_t>(options.counts->get({b, h, i})));
  for (int64_t n = 0; n < count; ++n)
    if (static_cast<int64_t>(options.indices->get({b, h, i, n})) == block) return true;
  return false;
}

Problem sparse(const TensorRef& q, const TensorRef& k, const TensorRef& v, const BlockSparseOptions& options,
               DType steps) {
  Inputs inputs(q, k, v, options.layout);
  const TensorRef& choice = options.mask ? *options.mask : *options.indices;
  const int64_t sharing = choice.size(1) == inputs.q.size(2) ? 1 : inputs.group();
  return {std::move(inputs),
          {},
          {},
          {},
          softmax_of(options.scale, q.size(-1), options.softcap, steps),
          [options, sharing](const Part& part) {
            return [=](int64_t i, int64_t j) -> double {
              return (!options.causal || j <= i + part.shift()) &&
                     chosen(options, {part.batch, part.head / sharing, i / options.q_block},
                            j / options.k_block);
            };
          }};
}

}  // namespace

AttentionResult attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                          const AttentionOptions& options, DType steps) {
  return forward(dense(q, k, v, options, steps));
}

AttentionGradients attention_backward(const TensorRef& dout, const TensorRef& q, const TensorRef& k,
                                      const TensorRef& v, const AttentionOptions& options,
                                      const std::optional<TensorRef>& dlse, DType steps) {
  return backward(dense(q, k, v, options, steps), dout, dlse);
}

AttentionResult block_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                       const BlockSparseOptions& options, DType steps) {
  return forward(sparse(q, k, v, options, steps));
}

AttentionGradients block_sparse_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                   const TensorRef& k, const TensorRef& v,
                                                   const BlockSparseOptions& options,
                                                   const std::optional<TensorRef>& dlse, DType steps) {
  return backward(sparse(q, k, v, options, steps), dout, dlse);
}

}  // namespace tegula::ops::reference

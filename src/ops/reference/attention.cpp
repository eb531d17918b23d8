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
          [options](const SequenceHead& own) {
            return [options, shift = own.shift()](int64_t i, std::vector<double>& times) {
              for (std::size_t j = 0; j < times.size(); ++j)
                times[j] = in_window(options, i + shift, static_cast<int64_t>(j));
            };
          }};
}

// The blocks of keys that the lists, or the mask, choose for a row of blocks.
std::vector<char> chosen(const BlockSparseOptions& options, std::array<int64_t, 3> row, int64_t blocks) {
  const auto [b, h, i] = row;
  std::vector<char> result(static_cast<std::size_t>(blocks), 0);
  if (options.mask) {
    for (std::size_t block = 0; block < result.size(); ++block)
      result[block] = options.mask->get({b, h, i, static_cast<int64_t>(block)}) != 0;
    return result;
  }
  int64_t count = options.indices->size(3);
  if (options.counts) count = std::min(count, static_cast<int64_t>(options.counts->get({b, h, i})));
  for (int64_t n = 0; n < count; ++n) {
    const auto block = static_cast<int64_t>(options.indices->get({b, h, i, n}));
    if (block >= 0 && block < blocks) result[static_cast<std::size_t>(block)] = 1;
  }
  return result;
}

Problem sparse(const TensorRef& q, const TensorRef& k, const TensorRef& v, const BlockSparseOptions& options,
               DType steps) {
  Inputs inputs(q, k, v, options.layout);
  const TensorRef& choice = options.mask ? *options.mask : *options.indices;
  const int64_t sharing = choice.size(1) == inputs.q.size(2) ? 1 : inputs.group();
  return {
      std::move(inputs),
      options.cu_seqlens_q,
      options.cu_seqlens_k,
      {},
      softmax_of(options.scale, q.size(-1), options.softcap, steps),
      [options, sharing](const SequenceHead& own) {
        return [=](int64_t i, std::vector<double>& times) {
          const auto keys = static_cast<int64_t>(times.size());
          const auto blocks = chosen(options, {own.sequence, own.head / sharing, i / options.q_block_size},
                                     (keys + options.k_block_size - 1) / options.k_block_size);
          const int64_t end = options.causal ? std::min(keys, i + own.shift() + 1) : keys;
          for (int64_t j = 0; j < end; ++j)
            times[static_cast<std::size_t>(j)] = blocks[static_cast<std::size_t>(j / options.k_block_size)];
        };
      }};
}

}  // namespace

AttentionResult attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                          const AttentionOptions& options, DType steps, DType weights) {
  Problem problem = dense(q, k, v, options, steps);
  problem.softmax.weights = weights;
  return forward(problem);
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

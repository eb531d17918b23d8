#include <algorithm>

#include "ops/pieces/heads.hpp"
#include "ops/reference/problem.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops::reference {

namespace {

using std::int64_t;

// What every token selects: [batch, tokens, heads, entries], packed tokens in a batch of one.
struct Selections {
  TensorRef indices;
  std::optional<TensorRef> counts;
  int64_t sharing = 1;  // query heads of one list
  NsaSelectedOptions options;

  Selections(const TensorRef& q, const TensorRef& k, const TensorRef& block_indices,
             const NsaSelectedOptions& options_)
      : options(options_) {
    auto batched = [&](const TensorRef& t) {
      Shape shape = t.shape;
      shape.insert(shape.begin(), 1);
      return q.rank() == 3 ? t.reshape(shape) : as_bshd(t, options.layout);
    };
    indices = batched(block_indices);
    if (options.block_counts) counts = batched(*options.block_counts);
    auto heads = [&](const TensorRef& t) {
      return t.rank() == 4 && options.layout == Layout::bhsd ? t.size(1) : t.size(-2);
    };
    sharing = indices.size(2) == heads(q) ? 1 : heads(q) / std::max<int64_t>(1, heads(k));
  }

  // Calls `visit` for every entry that counts and names the block, of the query at i of the sequence.
  template <class F>
  void each(const SequenceHead& own, int64_t i, int64_t block, F visit) const {
    const int64_t row = own.q_begin + i, head = own.head / sharing;
    int64_t count = indices.size(3);
    if (counts) count = std::min(count, static_cast<int64_t>(counts->get({own.batch, row, head})));
    for (int64_t n = 0; n < count; ++n)
      if (static_cast<int64_t>(indices.get({own.batch, row, head, n})) == block) visit(n);
  }
  double times(const SequenceHead& own, int64_t i, int64_t block) const {
    const int64_t position = i + own.shift();
    double sum = options.diagonal && position >= 0 && position / options.block_size == block;
    each(own, i, block, [&](int64_t) { sum += 1; });
    return options.repeats ? sum : std::min(sum, 1.0);
  }
};

Problem selected(const TensorRef& q, const TensorRef& k, const TensorRef& v, const Selections& lists,
                 DType steps) {
  const NsaSelectedOptions& options = lists.options;
  return {Inputs(q, k, v, options.layout),
          options.cu_seqlens_q,
          options.cu_seqlens_k,
          {},
          softmax_of(options.scale, q.size(-1), 0, steps),
          [lists](const SequenceHead& own) {
            return [lists, own](int64_t i, std::vector<double>& times) {
              const auto keys = static_cast<int64_t>(times.size());
              const int64_t end = lists.options.causal ? std::min(keys, i + own.shift() + 1) : keys;
              for (int64_t j = 0; j < end; ++j) {
                const auto at = static_cast<std::size_t>(j);
                const int64_t block = lists.options.block_size;
                times[at] = j % block == 0 ? lists.times(own, i, j / block) : times[at - 1];
              }
            };
          }};
}

AttentionOptions window_of(const NsaSelectedOptions& options) {
  return {.layout = options.layout,
          .scale = options.scale,
          .causal = true,
          .left = options.window - 1,
          .cu_seqlens_q = options.cu_seqlens_q,
          .cu_seqlens_k = options.cu_seqlens_k};
}

void add(const Tensor& to, const Tensor& more) {
  double* x = to.data_as<double>();
  for (double value : more.values<double>()) *x++ += value;
}

}  // namespace

NsaSelectedResult nsa_selected_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                         const TensorRef& block_indices, const NsaSelectedOptions& options,
                                         DType steps) {
  const Selections lists(q, k, block_indices, options);
  const AttentionResult own = forward(selected(q, k, v, lists, steps));
  NsaSelectedResult result{own.out, own.lse, {}, {}};
  if (options.window == 0) return result;
  const AttentionResult beside = attention(q, k, v, window_of(options), steps);
  result.window_out = beside.out, result.window_lse = beside.lse;
  return result;
}

NsaSelectedGradients nsa_selected_attention_backward(const TensorRef& dout, const TensorRef& q,
                                                     const TensorRef& k, const TensorRef& v,
                                                     const TensorRef& block_indices,
                                                     const NsaSelectedOptions& options,
                                                     const NsaSelectedBackwardOptions& gradients,
                                                     DType steps) {
  const Selections lists(q, k, block_indices, options);
  const Tensor dsel_scale = Tensor::zeros(lists.indices.shape, f64);
  const ScoreObserver observe = [&](const SequenceHead& own) {
    return [&lists, &dsel_scale, own](int64_t i, int64_t j, double value) {
      const int64_t block = j / lists.options.block_size;
      const double share = value / lists.times(own, i, block);
      bool first = true;
      lists.each(own, i, block, [&](int64_t n) {
        if (first || lists.options.repeats)
          dsel_scale.at<double>(own.batch, own.q_begin + i, own.head / lists.sharing, n) += share;
        first = false;
      });
    };
  };
  const AttentionGradients own = backward(selected(q, k, v, lists, steps), dout, gradients.dlse,
                                          gradients.sel_scale_gradient ? observe : ScoreObserver());
  if (gradients.dwindow_out) {
    const AttentionGradients beside =
        attention_backward(*gradients.dwindow_out, q, k, v, window_of(options), gradients.dwindow_lse, steps);
    add(own.dq, beside.dq), add(own.dk, beside.dk), add(own.dv, beside.dv);
  }
  NsaSelectedGradients result{own.dq, own.dk, own.dv, Tensor::empty({0}, f64)};
  if (!gradients.sel_scale_gradient) return result;
  result.dsel_scale = q.rank() == 3 ? dsel_scale.select(0, 0)
                                    : Tensor::adopt(as_bshd(dsel_scale, options.layout), dsel_scale.owner());
  return result;
}

}  // namespace tegula::ops::reference

// An attention problem of any kind for the references: its tensors, its attention pattern, and its sequences
// and heads.
#pragma once
#include <optional>

#include "ops/reference/softmax.hpp"
#include "tegula/ops/attention_backward.hpp"

namespace tegula::ops::reference {

Softmax softmax_of(const std::optional<float>& scale, std::int64_t dim, double softcap, DType steps);
// f64 [batch, tokens, heads, features]; packed tensors get a batch of one.
Tensor ordered(const TensorRef& tensor, Layout layout);

// One query head of a sequence, or of a member of a batch: it attends to nothing outside it.
struct SequenceHead {
  std::int64_t batch = 0, head = 0, q_begin = 0, q_end = 0, k_begin = 0, k_end = 0;
  std::int64_t sequence = 0;  // packed ones share a batch

  std::int64_t shift() const { return (k_end - k_begin) - (q_end - q_begin); }
  Tensor of_queries(const Tensor& t, std::int64_t h) const {
    return t.select(0, batch).slice(0, q_begin, q_end).select(1, h);
  }
  Tensor of_keys(const Tensor& t, std::int64_t h) const {
    return t.select(0, batch).slice(0, k_begin, k_end).select(1, h);
  }
  Tensor vector(const Tensor& t) const { return t.select(0, batch).select(0, head).slice(0, q_begin, q_end); }
};

struct Inputs {
  Tensor q, k, v;  // ordered
  int rank;
  Layout layout;

  Inputs(const TensorRef& q_, const TensorRef& k_, const TensorRef& v_, Layout layout_)
      : q(ordered(q_, layout_)),
        k(ordered(k_, layout_)),
        v(ordered(v_, layout_)),
        rank(q_.rank()),
        layout(layout_) {}

  std::int64_t group() const { return k.size(2) == 0 ? 1 : q.size(2) / k.size(2); }
  Shape vector_shape() const { return {q.size(0), q.size(2), q.size(1)}; }
  Tensor vectors(const std::optional<TensorRef>& given) const {
    return given ? doubles(given->reshape(vector_shape())) : Tensor::zeros(vector_shape(), f64);
  }
  Head head(const SequenceHead& own, Sight times) const {
    const std::int64_t kv_head = own.head / group();
    return {own.of_queries(q, own.head), own.of_keys(k, kv_head), own.of_keys(v, kv_head), std::move(times)};
  }

  void each(const std::optional<TensorRef>& fences_q, const std::optional<TensorRef>& fences_k,
            const std::function<void(const SequenceHead&)>& body) const {
    auto fence = [](const TensorRef& fences, std::int64_t i) {
      return static_cast<std::int64_t>(fences.get({i}));
    };
    const std::int64_t sequences = fences_q ? fences_q->size(0) - 1 : q.size(0);
    for (std::int64_t b = 0; b < sequences; ++b)
      for (std::int64_t h = 0; h < q.size(2); ++h) {
        SequenceHead own{b, h, 0, q.size(1), 0, k.size(1), b};
        if (fences_q)
          own = {0,
                 h,
                 fence(*fences_q, b),
                 fence(*fences_q, b + 1),
                 fence(*fences_k, b),
                 fence(*fences_k, b + 1),
                 b};
        body(own);
      }
  }
};

// One rule of visibility per sequence and head.
using Rule = std::function<Sight(const SequenceHead&)>;

struct Problem {
  Inputs inputs;
  std::optional<TensorRef> fences_q, fences_k, sinks;
  Softmax softmax;
  Rule rule;

  Softmax softmax_of_head(std::int64_t head) const {
    Softmax result = softmax;
    if (sinks) result.sink = sinks->get({head});
    return result;
  }
};

AttentionResult forward(const Problem& problem);
// `scores` may give, for each of these, what is told the gradients of its scores (see HeadGradients).
using ScoreObserver = std::function<decltype(HeadGradients::scores)(const SequenceHead&)>;
AttentionGradients backward(const Problem& problem, const TensorRef& dout,
                            const std::optional<TensorRef>& dlse, const ScoreObserver& scores = {});

}  // namespace tegula::ops::reference

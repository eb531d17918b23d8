#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "ops/attention/heads.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops::reference {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor doubles(const TensorRef& tensor) { return Tensor::adopt(tensor, nullptr).to(f64).contiguous(); }

struct Softmax {
  double scale = 1, softcap = 0;
  std::optional<TensorRef> sinks;
  DType steps = f64;

  double rounded(double value) const { return steps == f64 ? value : round_to(steps, value); }
};

// One head of one sequence: q [queries, d], k, v [keys, …]; out [queries, dv], lse [queries].
void attend(const Softmax& softmax, std::int64_t head, const Tensor& q, const Tensor& k, const Tensor& v,
            const std::function<bool(std::int64_t, std::int64_t)>& sees, const TensorRef& out,
            const TensorRef& lse) {
  std::vector<double> scores(static_cast<std::size_t>(k.size(0)));
  const double sink = softmax.sinks ? softmax.sinks->get({head}) : -infinity;
  for (std::int64_t i = 0; i < q.size(0); ++i) {
    double top = sink;
    for (std::int64_t j = 0; j < k.size(0); ++j) {
      double score = 0;
      for (std::int64_t d = 0; d < q.size(1); ++d) score += q.at<double>(i, d) * k.at<double>(j, d);
      score = softmax.rounded(softmax.rounded(score) * softmax.scale);
      if (softmax.softcap > 0) score = softmax.softcap * std::tanh(score / softmax.softcap);
      scores[static_cast<std::size_t>(j)] = score = sees(i, j) ? score : -infinity;
      top = std::max(top, score);
    }
    const double shift = top == -infinity ? 0 : top;
    double sum = std::exp(sink - shift);
    std::vector<double> row(static_cast<std::size_t>(v.size(1)), 0.0);
    for (std::int64_t j = 0; j < k.size(0); ++j) {
      const double weight = softmax.rounded(std::exp(scores[static_cast<std::size_t>(j)] - shift));
      if (weight == 0) continue;
      sum += weight;
      for (std::size_t d = 0; d < row.size(); ++d)
        row[d] += weight * v.at<double>(j, static_cast<std::int64_t>(d));
    }
    for (std::size_t d = 0; d < row.size(); ++d)
      out.at<double>(i, static_cast<std::int64_t>(d)) = sum == 0 ? 0 : softmax.rounded(row[d] / sum);
    lse.at<double>(i) = sum == 0 ? -infinity : shift + std::log(sum);
  }
}

double scale_of(const std::optional<float>& scale, std::int64_t dim) {
  return scale ? *scale : 1 / std::sqrt(static_cast<double>(dim));
}

struct Views {
  Tensor q, k, v;  // f64 [batch, tokens, heads, features]
  Tensor out, lse;

  Views(const TensorRef& q_, const TensorRef& k_, const TensorRef& v_, Layout layout)
      : q(doubles(as_bshd(q_, layout))), k(doubles(as_bshd(k_, layout))), v(doubles(as_bshd(v_, layout))) {
    out = Tensor::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, f64);
    lse = Tensor::zeros({q.size(0), q.size(2), q.size(1)}, f64);
  }
  std::int64_t group() const { return k.size(2) == 0 ? 1 : q.size(2) / k.size(2); }
  AttentionResult result(Layout layout) const {
    return {layout == Layout::bshd ? out : out.transpose(1, 2).contiguous(), lse};
  }
};

// Whether a query at `position` sees key j.
bool in_window(const AttentionOptions& options, std::int64_t position, std::int64_t j) {
  if (options.left >= 0 && j < position - options.left) return false;
  const std::int64_t right = options.causal ? 0 : options.right;
  return right < 0 || j <= position + right;
}

}  // namespace

AttentionResult attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                          const AttentionOptions& options, DType steps) {
  const bool packed = options.cu_seqlens_q.has_value();
  auto batched = [&](const TensorRef& t) {
    return packed ? t.reshape({1, t.size(0), t.size(1), t.size(2)}) : t;
  };
  const Layout layout = packed ? Layout::bshd : options.layout;
  Views t(batched(q), batched(k), batched(v), layout);
  const Softmax softmax{scale_of(options.scale, t.q.size(3)), options.softcap, options.sinks, steps};
  const std::int64_t sequences = packed ? options.cu_seqlens_q->size(0) - 1 : t.q.size(0);
  auto fence = [](const TensorRef& fences, std::int64_t i) {
    return static_cast<std::int64_t>(fences.get({i}));
  };
  for (std::int64_t b = 0; b < sequences; ++b)
    for (std::int64_t h = 0; h < t.q.size(2); ++h) {
      const std::int64_t batch = packed ? 0 : b;
      const std::int64_t q0 = packed ? fence(*options.cu_seqlens_q, b) : 0,
                         q1 = packed ? fence(*options.cu_seqlens_q, b + 1) : t.q.size(1),
                         k0 = packed ? fence(*options.cu_seqlens_k, b) : 0,
                         k1 = packed ? fence(*options.cu_seqlens_k, b + 1) : t.k.size(1);
      auto of = [&](const Tensor& x, std::int64_t head, std::int64_t begin, std::int64_t end) {
        return x.select(0, batch).slice(0, begin, end).select(1, head);
      };
      const std::int64_t shift = (k1 - k0) - (q1 - q0);
      attend(
          softmax, h, of(t.q, h, q0, q1), of(t.k, h / t.group(), k0, k1), of(t.v, h / t.group(), k0, k1),
          [&](std::int64_t i, std::int64_t j) { return in_window(options, i + shift, j); },
          of(t.out, h, q0, q1), t.lse.select(0, batch).select(0, h).slice(0, q0, q1));
    }
  AttentionResult result = t.result(layout);
  if (packed) result = {result.out.select(0, 0), result.lse.select(0, 0)};
  return result;
}

AttentionResult block_sparse_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                       const BlockSparseOptions& options, DType steps) {
  Views t(q, k, v, options.layout);
  const Softmax softmax{scale_of(options.scale, t.q.size(3)), options.softcap, {}, steps};
  const TensorRef& choice = options.mask ? *options.mask : *options.indices;
  const std::int64_t shift = t.k.size(1) - t.q.size(1);
  auto chosen = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t block) {
    if (options.mask) return choice.get({b, h, i, block}) != 0;
    std::int64_t count = choice.size(3);
    if (options.counts) count = std::min(count, static_cast<std::int64_t>(options.counts->get({b, h, i})));
    for (std::int64_t n = 0; n < count; ++n)
      if (static_cast<std::int64_t>(choice.get({b, h, i, n})) == block) return true;
    return false;
  };
  for (std::int64_t b = 0; b < t.q.size(0); ++b)
    for (std::int64_t h = 0; h < t.q.size(2); ++h) {
      const std::int64_t list = choice.size(1) == t.q.size(2) ? h : h / t.group();
      auto of = [&](const Tensor& x, std::int64_t head) { return x.select(0, b).select(1, head); };
      attend(
          softmax, h, of(t.q, h), of(t.k, h / t.group()), of(t.v, h / t.group()),
          [&](std::int64_t i, std::int64_t j) {
            return (!options.causal || j <= i + shift) &&
                   chosen(b, list, i / options.q_block, j / options.k_block);
          },
          of(t.out, h), t.lse.select(0, b).select(0, h));
    }
  return t.result(options.layout);
}

}  // namespace tegula::ops::reference

#include <cmath>

#include "ops/attention/heads.hpp"
#include "ops/reference/reference.hpp"
#include "ops/reference/softmax.hpp"

namespace tegula::ops::reference {

namespace {

using std::int64_t;

Softmax softmax_of(const std::optional<float>& scale, int64_t dim, double softcap, DType steps) {
  return {
      .scale = scale ? *scale : 1 / std::sqrt(static_cast<double>(dim)), .softcap = softcap, .steps = steps};
}

// f64 [batch, tokens, heads, features], or [batch, heads, tokens]; packed tensors get a batch of one.
Tensor ordered(const TensorRef& tensor, Layout layout) {
  if (tensor.rank() == 3) return doubles(tensor.reshape({1, tensor.size(0), tensor.size(1), tensor.size(2)}));
  return doubles(as_bshd(tensor, layout));
}

Tensor restored(const Tensor& tensor, Layout layout, int rank) {
  if (rank == 3) return tensor.select(0, 0);
  return layout == Layout::bshd ? tensor : tensor.transpose(1, 2).contiguous();
}

// Part of a sequence or of a batch that meets itself only.
struct Part {
  int64_t batch = 0, head = 0, q_begin = 0, q_end = 0, k_begin = 0, k_end = 0;

  int64_t shift() const { return (k_end - k_begin) - (q_end - q_begin); }
  Tensor of_queries(const Tensor& t, int64_t h) const {
    return t.select(0, batch).slice(0, q_begin, q_end).select(1, h);
  }
  Tensor of_keys(const Tensor& t, int64_t h) const {
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

  int64_t group() const { return k.size(2) == 0 ? 1 : q.size(2) / k.size(2); }
  Shape vector_shape() const { return {q.size(0), q.size(2), q.size(1)}; }
  Tensor vectors(const std::optional<TensorRef>& given) const {
    return given ? doubles(given->reshape(vector_shape())) : Tensor::zeros(vector_shape(), f64);
  }
  Head head(const Part& part, std::function<double(int64_t, int64_t)> times) const {
    const int64_t kv_head = part.head / group();
    return {part.of_queries(q, part.head), part.of_keys(k, kv_head), part.of_keys(v, kv_head),
            std::move(times)};
  }

  void each(const std::optional<TensorRef>& fences_q, const std::optional<TensorRef>& fences_k,
            const std::function<void(const Part&)>& body) const {
    auto fence = [](const TensorRef& fences, int64_t i) { return static_cast<int64_t>(fences.get({i})); };
    const int64_t sequences = fences_q ? fences_q->size(0) - 1 : q.size(0);
    for (int64_t b = 0; b < sequences; ++b)
      for (int64_t h = 0; h < q.size(2); ++h) {
        Part part{b, h, 0, q.size(1), 0, k.size(1)};
        if (fences_q)
          part = {0,
                  h,
                  fence(*fences_q, b),
                  fence(*fences_q, b + 1),
                  fence(*fences_k, b),
                  fence(*fences_k, b + 1)};
        body(part);
      }
  }
};

// A rule of who sees whom, for each part.
using Rule = std::function<std::function<double(int64_t, int64_t)>(const Part&)>;

struct Problem {
  Inputs inputs;
  std::optional<TensorRef> fences_q, fences_k, sinks;
  Softmax softmax;
  Rule rule;

  Softmax softmax_of_head(int64_t head) const {
    Softmax result = softmax;
    if (sinks) result.sink = sinks->get({head});
    return result;
  }
};

AttentionResult forward(const Problem& p) {
  const Inputs& t = p.inputs;
  const Tensor out = Tensor::zeros({t.q.size(0), t.q.size(1), t.q.size(2), t.v.size(3)}, f64);
  const Tensor lse = Tensor::zeros(t.vector_shape(), f64);
  t.each(p.fences_q, p.fences_k, [&](const Part& part) {
    attend(p.softmax_of_head(part.head), t.head(part, p.rule(part)), part.of_queries(out, part.head),
           part.vector(lse));
  });
  return {restored(out, t.layout, t.rank), t.rank == 3 ? lse.select(0, 0) : lse};
}

AttentionGradients backward(const Problem& p, const TensorRef& dout, const std::optional<TensorRef>& dlse) {
  const Inputs& t = p.inputs;
  const Tensor dq = Tensor::zeros(t.q.shape(), f64), dk = Tensor::zeros(t.k.shape(), f64),
               dv = Tensor::zeros(t.v.shape(), f64), dsinks = Tensor::zeros({p.sinks ? t.q.size(2) : 0}, f64);
  const Tensor of_out = ordered(dout, t.layout), of_lse = t.vectors(dlse);
  t.each(p.fences_q, p.fences_k, [&](const Part& part) {
    const int64_t kv_head = part.head / t.group();
    HeadGradients gradients{
        part.of_queries(dq, part.head), part.of_keys(dk, kv_head), part.of_keys(dv, kv_head), 0, {}};
    differentiate(p.softmax_of_head(part.head), t.head(part, p.rule(part)),
                  part.of_queries(of_out, part.head), part.vector(of_lse), gradients);
    if (p.sinks) dsinks.at<double>(part.head) += gradients.dsink;
  });
  return {restored(dq, t.layout, t.rank), restored(dk, t.layout, t.rank), restored(dv, t.layout, t.rank),
          dsinks};
}

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

// How often the token at `row` of `indices` [batch, tokens, heads, entries] selects a block.
double selections(const NsaSelectedOptions& options, const TensorRef& indices,
                  const std::optional<TensorRef>& counts, std::array<int64_t, 3> row, int64_t block) {
  const auto [b, i, h] = row;
  int64_t count = indices.size(3);
  if (counts) count = std::min(count, static_cast<int64_t>(counts->get({b, i, h})));
  double times = 0;
  for (int64_t n = 0; n < count; ++n) times += static_cast<int64_t>(indices.get({b, i, h, n})) == block;
  return options.repeats ? times : std::min(times, 1.0);
}

Problem selected(const TensorRef& q, const TensorRef& k, const TensorRef& v, const TensorRef& block_indices,
                 const NsaSelectedOptions& options, DType steps) {
  Inputs inputs(q, k, v, options.layout);
  const bool packed = q.rank() == 3;
  auto batched = [&](const TensorRef& t) {
    Shape shape = t.shape;
    shape.insert(shape.begin(), 1);
    return packed ? t.reshape(shape) : as_bshd(t, options.layout);
  };
  const TensorRef indices = batched(block_indices);
  std::optional<TensorRef> counts;
  if (options.block_counts) counts = batched(*options.block_counts);
  const int64_t sharing = indices.size(2) == inputs.q.size(2) ? 1 : inputs.group();
  return {std::move(inputs),
          options.cu_seqlens_q,
          options.cu_seqlens_k,
          {},
          softmax_of(options.scale, q.size(-1), 0, steps),
          [=](const Part& part) {
            return [=](int64_t i, int64_t j) -> double {
              const int64_t position = i + part.shift(), block = j / options.block_size;
              if (options.causal && j > position) return 0;
              const double times = selections(options, indices, counts,
                                              {part.batch, part.q_begin + i, part.head / sharing}, block);
              const bool own = options.diagonal && position >= 0 && position / options.block_size == block;
              return options.repeats ? times + own : std::max(times, own ? 1.0 : 0.0);
            };
          }};
}

}  // namespace

NsaSelectedResult nsa_selected_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                         const TensorRef& block_indices, const NsaSelectedOptions& options,
                                         DType steps) {
  const AttentionResult own = forward(selected(q, k, v, block_indices, options, steps));
  NsaSelectedResult result{own.out, own.lse, {}, {}};
  if (options.window == 0) return result;
  const AttentionOptions window{.layout = options.layout,
                                .scale = options.scale,
                                .causal = true,
                                .left = options.window - 1,
                                .cu_seqlens_q = options.cu_seqlens_q,
                                .cu_seqlens_k = options.cu_seqlens_k};
  const AttentionResult beside = forward(dense(q, k, v, window, steps));
  result.window_out = beside.out, result.window_lse = beside.lse;
  return result;
}

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

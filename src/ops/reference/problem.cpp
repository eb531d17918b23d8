#include "ops/reference/problem.hpp"

#include <cmath>

#include "ops/pieces/heads.hpp"

namespace tegula::ops::reference {

using std::int64_t;

Softmax softmax_of(const std::optional<float>& scale, int64_t dim, double softcap, DType steps) {
  return {
      .scale = scale ? *scale : 1 / std::sqrt(static_cast<double>(dim)), .softcap = softcap, .steps = steps};
}

Tensor ordered(const TensorRef& tensor, Layout layout) {
  if (tensor.rank() == 3) return doubles(tensor.reshape({1, tensor.size(0), tensor.size(1), tensor.size(2)}));
  return doubles(as_bshd(tensor, layout));
}

namespace {

Tensor restored(const Tensor& tensor, Layout layout, int rank) {
  if (rank == 3) return tensor.select(0, 0);
  return layout == Layout::bshd ? tensor : tensor.transpose(1, 2).contiguous();
}

}  // namespace

AttentionResult forward(const Problem& p) {
  const Inputs& t = p.inputs;
  const Tensor out = Tensor::zeros({t.q.size(0), t.q.size(1), t.q.size(2), t.v.size(3)}, f64);
  const Tensor lse = Tensor::zeros(t.vector_shape(), f64);
  t.each(p.fences_q, p.fences_k, [&](const SequenceHead& own) {
    attend(p.softmax_of_head(own.head), t.head(own, p.rule(own)), own.of_queries(out, own.head),
           own.vector(lse));
  });
  return {restored(out, t.layout, t.rank), t.rank == 3 ? lse.select(0, 0) : lse};
}

AttentionGradients backward(const Problem& p, const TensorRef& dout, const std::optional<TensorRef>& dlse,
                            const ScoreObserver& scores) {
  const Inputs& t = p.inputs;
  const Tensor dq = Tensor::zeros(t.q.shape(), f64), dk = Tensor::zeros(t.k.shape(), f64),
               dv = Tensor::zeros(t.v.shape(), f64), dsinks = Tensor::zeros({p.sinks ? t.q.size(2) : 0}, f64);
  const Tensor of_out = ordered(dout, t.layout), of_lse = t.vectors(dlse);
  t.each(p.fences_q, p.fences_k, [&](const SequenceHead& own) {
    const int64_t kv_head = own.head / t.group();
    HeadGradients gradients{own.of_queries(dq, own.head), own.of_keys(dk, kv_head), own.of_keys(dv, kv_head),
                            0, scores ? scores(own) : nullptr};
    differentiate(p.softmax_of_head(own.head), t.head(own, p.rule(own)), own.of_queries(of_out, own.head),
                  own.vector(of_lse), gradients);
    if (p.sinks) dsinks.at<double>(own.head) += gradients.dsink;
  });
  return {restored(dq, t.layout, t.rank), restored(dk, t.layout, t.rank), restored(dv, t.layout, t.rank),
          dsinks};
}

}  // namespace tegula::ops::reference

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
  t.each(p.fences_q, p.fences_k, [&](const Part& part) {
    attend(p.softmax_of_head(part.head), t.head(part, p.rule(part)), part.of_queries(out, part.head),
           part.vector(lse));
  });
  return {restored(out, t.layout, t.rank), t.rank == 3 ? lse.select(0, 0) : lse};
}

AttentionGradients backward(const Problem& p, const TensorRef& dout, const std::optional<TensorRef>& dlse,
                            const ScoreObserver& scores) {
  const Inputs& t = p.inputs;
  const Tensor dq = Tensor::zeros(t.q.shape(), f64), dk = Tensor::zeros(t.k.shape(), f64),
               dv = Tensor::zeros(t.v.shape(), f64), dsinks = Tensor::zeros({p.sinks ? t.q.size(2) : 0}, f64);
  const Tensor of_out = ordered(dout, t.layout), of_lse = t.vectors(dlse);
  t.each(p.fences_q, p.fences_k, [&](const Part& part) {
    const int64_t kv_head = part.head / t.group();
    HeadGradients gradients{part.of_queries(dq, part.head), part.of_keys(dk, kv_head),
                            part.of_keys(dv, kv_head), 0, scores ? scores(part) : nullptr};
    differentiate(p.softmax_of_head(part.head), t.head(part, p.rule(part)),
                  part.of_queries(of_out, part.head), part.vector(of_lse), gradients);
    if (p.sinks) dsinks.at<double>(part.head) += gradients.dsink;
  });
  return {restored(dq, t.layout, t.rank), restored(dk, t.layout, t.rank), restored(dv, t.layout, t.rank),
          dsinks};
}

}  // namespace tegula::ops::reference

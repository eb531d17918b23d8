#include "ops/common/softmax.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

// In powers of two, how far scores may exceed what they are relative to: weights up to 2^8 are as exact as
// those up to 1.
constexpr float slack = 8;

}  // namespace

void scale_rows(Fragment& x, const Fragment& factor, Loc at) {
  Trace trace("scale_rows", at);
  parallel(x, [&](Index i, Index j) { x(i, j) *= factor(i); });
}

void rescale_rows(Fragment& x, const Fragment& factor, Loc at) {
  Trace trace("rescale_rows", at);
  parallel(x, [&](Index i, Index j) { when(factor(i) != 1, [&] { x(i, j) *= factor(i); }); });
}

OnlineSoftmax::OnlineSoftmax(int rows, const Expr& scale, Loc at)
    : rows_(rows),
      scale_(scale),
      max_({rows}, f32, Operand(-inf, at), at),
      sum_({rows}, f32, Operand(0, at), at) {}

Fragment OnlineSoftmax::update(Fragment& scores, Loc at) {
  Trace trace("OnlineSoftmax::update", at);
  Fragment before = clone(max_), factor({rows_}, f32), shift({rows_}, f32);
  reduce_max(scores, max_);
  parallel(max_, [&](Index i) {
    // A row without a score yet has the maximum −∞; −∞ − −∞ must not arise.
    shift(i) = select(max_(i) == -inf, 0, max_(i) * scale_);
    factor(i) = exp2(before(i) * scale_ - shift(i));
    sum_(i) *= factor(i);
  });
  exponentials(scores, shift);
  return factor;
}

Fragment OnlineSoftmax::update_lazily(Fragment& scores, const RowCondition& sees, Loc at) {
  Trace trace("OnlineSoftmax::update_lazily", at);
  Fragment top = reduce_max(scores), factor({rows_}, f32), shift({rows_}, f32);
  parallel(max_, [&](Index i) {
    Expr before = max_(i) * scale_, moves = sees(i) && top(i) * scale_ > before + slack;
    Expr now = select(moves, top(i), max_(i)), above = select(now == -inf, 0, now * scale_);
    factor(i) = select(moves, exp2(before - above), 1);
    shift(i) = select(sees(i), above, inf);
    max_(i) = now;
    sum_(i) *= factor(i);
  });
  exponentials(scores, shift);
  return factor;
}

void OnlineSoftmax::exponentials(Fragment& scores, const Fragment& shift) {
  parallel(scores, [&](Index i, Index j) { scores(i, j) = exp2(scores(i, j) * scale_ - shift(i)); });
  reduce_sum(scores, sum_);
}

void OnlineSoftmax::add_sink(Fragment& accumulated, const Sink& sink, Loc at) {
  Trace trace("OnlineSoftmax::add_sink", at);
  Fragment factor({rows_}, f32);
  parallel(max_, [&](Index i) {
    Expr logit = sink(i), own = max_(i) * scale_, top = max(own, logit);
    // A sink of −∞ adds nothing, also to a row that has no score.
    Expr shift = select(top == -inf, 0, top);
    factor(i) = exp2(own - shift);
    sum_(i) = sum_(i) * factor(i) + exp2(logit - shift);
    max_(i) = top / scale_;
  });
  scale_rows(accumulated, factor);
}

void OnlineSoftmax::normalize(Fragment& accumulated, Loc at) {
  Trace trace("OnlineSoftmax::normalize", at);
  Fragment inverse({rows_}, f32);
  parallel(inverse, [&](Index i) { inverse(i) = select(sum_(i) == 0, 0, rcp(sum_(i))); });
  scale_rows(accumulated, inverse);
}

Fragment OnlineSoftmax::lse(Loc at) {
  Trace trace("OnlineSoftmax::lse", at);
  Fragment result({rows_}, f32);
  parallel(result, [&](Index i) {
    result(i) = select(sum_(i) == 0, -inf, (max_(i) * scale_ + log2(sum_(i))) * ln2);
  });
  return result;
}

}  // namespace tegula::ops

#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

// In powers of two, how far scores may exceed what they are relative to: weights up to 2^8 are as exact as
// those up to 1.
constexpr float slack = 8;

// From this magnitude on, neighbouring scores, times the scale, are 8 or more apart: see slope_of.
constexpr float apart = 0x1p27f;

// The least power of two that is no less.
Expr power_above(const Expr& x) { return bitcast((bitcast(x, u32) + 0x7fffffu) & 0xff800000u, f32); }

}  // namespace

void scale_rows(Fragment& x, const Fragment& factor, Loc at) {
  Trace trace("scale_rows", at);
  parallel(x, [&](Index i, Index j) { x(i, j) *= factor(i); });
}

void rescale_rows(Fragment& x, const Fragment& factor, Loc at) {
  Trace trace("rescale_rows", at);
  parallel(x, [&](Index i, Index j) { when(factor(i) != 1, [&] { x(i, j) *= factor(i); }); });
}

OnlineSoftmax::OnlineSoftmax(int rows, const Expr& scale, float lift, Loc at)
    : rows_(rows),
      lift_(lift),
      scale_(scale),
      coarse_(power_above(scale)),
      bound_(apart / scale),
      max_("row_max", {rows}, f32, Operand(-inf, at), at),
      sum_("row_sum", {rows}, f32, Operand(0, at), at) {}

Expr OnlineSoftmax::slope_of(const Expr& top) const {
  return select(abs(top) >= Expr(bound_), Expr(coarse_), scale_);
}

// An exponent of two more and less by the lift.
Expr OnlineSoftmax::lifted(const Expr& exponent) const { return lift_ > 0 ? exponent + lift_ : exponent; }
Expr OnlineSoftmax::lowered(const Expr& exponent) const { return lift_ > 0 ? exponent - lift_ : exponent; }

Fragment OnlineSoftmax::update(Fragment& scores, Loc at) {
  Trace trace("OnlineSoftmax::update", at);
  Fragment before = clone(max_), factor({rows_}, f32), shift({rows_}, f32), slope({rows_}, f32);
  reduce_max(scores, max_);
  parallel(max_, [&](Index i) {
    slope(i) = slope_of(max_(i));
    // A row without a score yet has the maximum −∞; −∞ − −∞ must not arise.
    shift(i) = lowered(select(max_(i) == -inf, 0, max_(i) * slope(i)));
    // A fused product would differ from the rounded one in every step.
    factor(i) = exp2(select(before(i) == max_(i), 0, before(i) * slope(i) - lifted(shift(i))));
    sum_(i) *= factor(i);
  });
  exponentials(scores, slope, shift);
  return factor;
}

Fragment OnlineSoftmax::update_lazily(Fragment& scores, const RowCondition& sees, Loc at) {
  Trace trace("OnlineSoftmax::update_lazily", at);
  Fragment top = reduce_max(scores), factor({rows_}, f32), shift({rows_}, f32), slope({rows_}, f32);
  parallel(max_, [&](Index i) {
    Expr moves = sees(i) && (top(i) - max_(i)) * scale_ > slack;
    Expr now = select(moves, top(i), max_(i));
    slope(i) = slope_of(now);
    Expr above = select(now == -inf, 0, now * slope(i));
    factor(i) = select(moves, exp2(max_(i) * slope(i) - above), 1);
    shift(i) = select(sees(i), lowered(above), inf);
    max_(i) = now;
    sum_(i) *= factor(i);
  });
  exponentials(scores, slope, shift);
  return factor;
}

void OnlineSoftmax::exponentials(Fragment& scores, const Fragment& slope, const Fragment& shift) {
  parallel(scores, [&](Index i, Index j) { scores(i, j) = exp2(scores(i, j) * slope(i) - shift(i)); });
  reduce_sum(scores, sum_);
}

void OnlineSoftmax::add_sink(Fragment& accumulated, const Sink& sink, Loc at) {
  Trace trace("OnlineSoftmax::add_sink", at);
  Fragment factor("factor", {rows_}, f32);
  reference_.emplace(std::vector<int>{rows_}, f32, at);
  parallel(max_, [&](Index i) {
    Expr logit = sink(i), own = max_(i) * scale_, top = max(own, logit);
    // A sink of −∞ adds nothing, also to a row that has no score; one of ∞ leaves nothing of the others.
    Expr shift = select(top == -inf, 0, top);
    factor(i) = select(own >= logit, 1, exp2(own - top));
    sum_(i) = sum_(i) * factor(i) + select(logit == inf, 1, exp2(lifted(logit - shift)));
    (*reference_)(i) = top;
  });
  scale_rows(accumulated, factor);
}

Fragment OnlineSoftmax::shift(Loc at) const {
  Trace trace("OnlineSoftmax::shift", at);
  Fragment result({rows_}, f32);
  parallel(result,
           [&](Index i) { result(i) = lowered(select(max_(i) == -inf, 0, max_(i) * slope_of(max_(i)))); });
  return result;
}

void OnlineSoftmax::normalize(Fragment& accumulated, Loc at) {
  Trace trace("OnlineSoftmax::normalize", at);
  Fragment inverse("inverse", {rows_}, f32);
  parallel(inverse, [&](Index i) { inverse(i) = select(sum_(i) == 0, 0, rcp(sum_(i))); });
  scale_rows(accumulated, inverse);
}

Fragment OnlineSoftmax::lse(Loc at) {
  Trace trace("OnlineSoftmax::lse", at);
  Fragment result("result", {rows_}, f32);
  parallel(result, [&](Index i) {
    Expr top = reference_ ? Expr((*reference_)(i)) : max_(i) * scale_;
    result(i) = select(sum_(i) == 0, -inf, lowered(top + log2(sum_(i))) * ln2);
  });
  return result;
}

}  // namespace tegula::ops

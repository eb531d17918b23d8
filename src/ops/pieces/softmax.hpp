// Building blocks of attention programs.
#pragma once
#include <optional>

#include "tegula/lang.hpp"

namespace tegula::ops {

inline constexpr float ln2 = 0.6931471805599453f;

// Row i of `x` times factor(i).
void scale_rows(lang::Fragment& x, const lang::Fragment& factor, Loc at = Loc::current());
// The same where factors are mostly 1.
void rescale_rows(lang::Fragment& x, const lang::Fragment& factor, Loc at = Loc::current());

// Softmax over tiles of scores that arrive one after another. `scale`, which contains log2(e), is positive.
// Rows that meet no score above −∞ end with the sum 0, the output 0 and the lse −∞.
class OnlineSoftmax {
 public:
  // `lift` is a power of two by which the exponentials are larger: small ones of 8 bits are then not lost.
  OnlineSoftmax(int rows, const lang::Expr& scale, float lift = 0, Loc at = Loc::current());

  // Turns scores into their exponentials, relative to the maximum so far. The result is the factor that
  // rescales what was accumulated with earlier maxima.
  lang::Fragment update(lang::Fragment& scores, Loc at = Loc::current());
  // The same for short steps, whose products do not hide the rescaling: the maximum stands until scores
  // exceed it by far, so that the factor is mostly 1. Rows that do not see these scores at all are told by
  // `sees`, which costs less than scores of −∞.
  using RowCondition = std::function<lang::Expr(lang::Index)>;
  lang::Fragment update_lazily(lang::Fragment& scores, const RowCondition& sees, Loc at = Loc::current());

  // One more score a row, already times log2(e), that has no value row.
  using Sink = std::function<lang::Expr(lang::Index)>;
  void add_sink(lang::Fragment& accumulated, const Sink& sink, Loc at = Loc::current());

  // What the exponentials of all scores so far are relative to, in powers of two.
  lang::Fragment shift(Loc at = Loc::current()) const;

  // Divides what was accumulated by the sums.
  void normalize(lang::Fragment& accumulated, Loc at = Loc::current());
  // In natural logarithm.
  lang::Fragment lse(Loc at = Loc::current());

 private:
  // What the scores of a row with this maximum are multiplied by: the scale. Where f32 has no score within 8
  // of the maximum, the next power of two: its product with the maximum is exact, as that with the scale is
  // not, so that a fused multiply-add gives 0 for the maximum and not what rounding left of it, which may be
  // thousands. All other scores of such a row weigh nothing with either.
  lang::Expr slope_of(const lang::Expr& top) const;
  void exponentials(lang::Fragment& scores, const lang::Fragment& slope, const lang::Fragment& shift);
  lang::Expr lifted(const lang::Expr& exponent) const;
  lang::Expr lowered(const lang::Expr& exponent) const;

  int rows_;
  float lift_;
  lang::Expr scale_;
  lang::Var coarse_, bound_;                 // a power of two, and the scores that are multiplied by it
  lang::Fragment max_, sum_;                 // what raw scores are relative to; of the exponentials
  std::optional<lang::Fragment> reference_;  // with sinks, what they and scaled scores are relative to
};

}  // namespace tegula::ops

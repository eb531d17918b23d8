// Pieces that attention programs share.
#pragma once
#include <optional>

#include "tegula/lang.hpp"

namespace tegula::ops {

inline constexpr float ln2 = 0.6931471805599453f;

// Row i of `x` times factor(i).
void scale_rows(lang::Fragment& x, const lang::Fragment& factor, Loc at = Loc::current());

// Softmax over tiles of scores that arrive one after another. `scale`, which contains log2(e), is positive.
// Rows that meet no score above −∞ end with the sum 0, the output 0 and the lse −∞.
class OnlineSoftmax {
 public:
  OnlineSoftmax(int rows, const lang::Expr& scale, Loc at = Loc::current());

  // Turns scores into their exponentials, relative to the maximum so far. The result is the factor that
  // rescales what was accumulated with earlier maxima.
  lang::Fragment update(lang::Fragment& scores, Loc at = Loc::current());

  // One more score a row, already times log2(e), that has no value row.
  using Sink = std::function<lang::Expr(lang::Index)>;
  void add_sink(lang::Fragment& accumulated, const Sink& sink, Loc at = Loc::current());

  // Divides what was accumulated by the sums.
  void normalize(lang::Fragment& accumulated, Loc at = Loc::current());
  // In natural logarithm.
  lang::Fragment lse(Loc at = Loc::current());

 private:
  int rows_;
  lang::Expr scale_;
  lang::Fragment max_, sum_;  // of the raw scores; of the exponentials
};

}  // namespace tegula::ops

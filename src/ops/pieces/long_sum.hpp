// Sums of many terms.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::ops {

// A sum of many terms that is as exact as one of few: what rounding takes from it is added to the next term.
class LongSum {
 public:
  explicit LongSum(int extent) : sum_({extent}, f32, 0), lost_({extent}, f32, 0) {}

  void add(const lang::Fragment& terms) {
    parallel(sum_, [&](lang::Index d) {
      lang::Expr term = terms(d) - lost_(d), before = sum_(d), after = before + term;
      lost_(d) = (after - before) - term;
      sum_(d) = after;
    });
  }
  lang::Fragment& total() { return sum_; }

 private:
  lang::Fragment sum_, lost_;
};

}  // namespace tegula::ops

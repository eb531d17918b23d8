// log(1 + exp(x)), in programs and formulas.
#pragma once
#include <cmath>

#include "tegula/lang.hpp"

namespace tegula::ops {

// To a few units of rounding for small results, too: what 1 + e rounds away is put back.
inline lang::Expr softplus(const lang::Expr& x) {
  lang::Expr e = exp(x), y = 1 + e;
  return select(x > 20, x, select(y == 1, e, log(y) * (e / (y - 1))));
}

template <class Number>
Number softplus_of(const Number& x) {
  using std::exp, std::log;
  return log(1 + exp(x));
}

}  // namespace tegula::ops

// Formulas for operands that tensor cores read as tf32.
#pragma once
#include <cmath>

#include "ops/schema/bound.hpp"
#include "ops/schema/exact.hpp"
#include "tegula/ops/products.hpp"

namespace tegula::ops {

// The value with the bits that the precision keeps at least: what tensor cores read in memory they cut off.
inline double as_precision_keeps(Precision precision, double value) {
  if (precision == Precision::ieee || !std::isfinite(value)) return value;
  const int bits = precision == Precision::tf32 ? 11 : 21;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::trunc(std::ldexp(fraction, bits)), exponent - bits);
}

// An element of an operand as the formula of a call with the option `precision` has it, with steps that are
// rounded.
template <class Op>
double operand(const Bound<Op>& c, const Exact& exact, double value) {
  return exact.steps() == f64 || c.type("a") != f32 ? value : as_precision_keeps(c->precision, value);
}

}  // namespace tegula::ops

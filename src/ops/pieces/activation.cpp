#include "ops/pieces/activation.hpp"

#include <cmath>

namespace tegula::ops {

using namespace lang;

Expr activate(Activation activation, const Expr& x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      // Not max(): that would turn NaN into 0.
      return select(x < 0, 0, x);
    case Activation::gelu: {
      const float root = 0.7978845608028654f;  // √(2/π)
      return 0.5f * x * (1.f + tanh(root * (x + 0.044715f * x * x * x)));
    }
    case Activation::silu:
      return x / (1.f + exp2(-x * log2e));
  }
  throw InternalError("unknown activation");
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::gelu:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

}  // namespace tegula::ops

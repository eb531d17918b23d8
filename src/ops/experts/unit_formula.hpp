// For formulas of experts: the pairs of a call, and gated units.
#pragma once
#include <vector>

#include "ops/schema/derivative.hpp"
#include "ops/schema/exact.hpp"
#include "tegula/ops/gated_units.hpp"

namespace tegula::ops {

struct RoutedPair {
  std::int64_t token, choice, expert;
};
// Those that are not left out, of i32 [tokens, topk].
std::vector<RoutedPair> pairs_of(const TensorRef& experts);

inline double clamped(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
inline TracedNumber clamped(const TracedNumber& x, double low, double high) {
  return x.value < low ? TracedNumber(low) : x.value > high ? TracedNumber(high) : x;
}

// The j-th result of the unit of a row h of gates and values.
template <class Op, class Number>
Number unit_formula(const Op& op, const std::vector<Number>& h, std::int64_t j) {
  const auto at = [&](std::int64_t i) { return h[static_cast<std::size_t>(i)]; };
  const Number gate = at(op.interleaved ? 2 * j : j),
               value = at(op.interleaved ? 2 * j + 1 : j + static_cast<std::int64_t>(h.size()) / 2);
  const double limit = op.limit, alpha = op.alpha;
  switch (op.unit) {
    case GatedUnit::silu:
      return gate / (1 + exp(-gate)) * value;
    case GatedUnit::gelu:
      return 0.5 * gate * (1 + tanh(0.7978845608028654 * (gate + 0.044715 * (gate * gate * gate)))) * value;
    case GatedUnit::relu:
      return clamped(gate, 0, HUGE_VAL) * value;
    default:
      const Number low = clamped(gate, -HUGE_VAL, limit);
      return low / (1 + exp(-alpha * low)) * (clamped(value, -limit, limit) + 1);
  }
}

}  // namespace tegula::ops

// Formulas of gradients, derived from those of their operators.
//
//   template <class E>
//   void formula(const Bound<Scaled>& c, E& exact) {
//     const auto *x = exact.data("x"), *factor = exact.data("factor");
//     auto* out = exact.data("out");
//     for (std::int64_t i = 0; i < c.dim("rows"); ++i) out[i] = exact.step(x[i] * factor[0]);
//   }
//
// is the formula of `scaled` as formula<Exact>, and as formula<Traced> that of its gradient: of numbers that
// keep how they were made, so that the derivatives of all follow from the last to the first.
#pragma once
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "ops/schema/exact.hpp"

namespace tegula::ops {

// A number of a traced formula: its value, and where it stands in the trace; constants stand nowhere.
struct TracedNumber {
  double value = 0;
  std::int64_t at = -1;

  TracedNumber(double constant = 0) : value(constant) {}
  TracedNumber(double its_value, std::int64_t place) : value(its_value), at(place) {}
};

// A formula means these where its numbers are plain.
using std::exp, std::log, std::sqrt, std::tanh;

// A number with its derivatives by one or two others.
TracedNumber traced(double value, const TracedNumber& a, double by_a);
TracedNumber traced(double value, const TracedNumber& a, double by_a, const TracedNumber& b, double by_b);

inline TracedNumber operator+(const TracedNumber& a, const TracedNumber& b) {
  return traced(a.value + b.value, a, 1, b, 1);
}
inline TracedNumber operator-(const TracedNumber& a, const TracedNumber& b) {
  return traced(a.value - b.value, a, 1, b, -1);
}
inline TracedNumber operator*(const TracedNumber& a, const TracedNumber& b) {
  return traced(a.value * b.value, a, b.value, b, a.value);
}
inline TracedNumber operator/(const TracedNumber& a, const TracedNumber& b) {
  return traced(a.value / b.value, a, 1 / b.value, b, -a.value / (b.value * b.value));
}
inline TracedNumber operator-(const TracedNumber& a) { return 0 - a; }
inline TracedNumber& operator+=(TracedNumber& a, const TracedNumber& b) { return a = a + b; }
inline TracedNumber sqrt(const TracedNumber& a) {
  return traced(std::sqrt(a.value), a, 0.5 / std::sqrt(a.value));
}
inline TracedNumber exp(const TracedNumber& a) { return traced(std::exp(a.value), a, std::exp(a.value)); }
inline TracedNumber log(const TracedNumber& a) { return traced(std::log(a.value), a, 1 / a.value); }
inline TracedNumber tanh(const TracedNumber& a) {
  const double t = std::tanh(a.value);
  return traced(t, a, 1 - t * t);
}

// What a traced formula reads and writes, in the place of Exact: the tensors of a call of the gradient. What
// that call lacks are the operator's results, whose gradients it has.
class Traced {
 public:
  using Number = TracedNumber;

  Traced(const BoundCall& call, Exact& exact);
  ~Traced();
  Traced(const Traced&) = delete;

  TracedNumber* data(const std::string& tensor);
  // The value as stored by the operator; the gradient is that of the exact value.
  TracedNumber stored(const TracedNumber& value, DType type) {
    return traced(round_to(type, value.value), value, 1);
  }
  // Null for what the call lacks, and for results whose gradients are not given.
  TracedNumber* data_if(const std::string& tensor);
  // A step is rounded, and so is its gradient.
  TracedNumber step(const TracedNumber& value);
  TracedNumber rounded(const TracedNumber& value) { return step(value); }
  // Writes the gradients of the tensors that have been read.
  void differentiate();

 private:
  friend TracedNumber traced(double value, const TracedNumber& a, double by_a, const TracedNumber& b,
                             double by_b);
  struct Node {
    std::int64_t of[2];
    double by[2];
    bool is_step = false;
  };
  TracedNumber add(double value, const Node& node);

  const BoundCall& call_;
  Exact& exact_;
  Traced* outer_;
  std::vector<Node> nodes_;
  std::map<std::string, std::vector<TracedNumber>> tensors_;
};

}  // namespace tegula::ops

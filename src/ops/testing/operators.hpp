// What the tests of operators share: tensors surrounded by values that must not be read, and the rule by
// which results are judged.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ops/schema/judge.hpp"
#include "ops/schema/launch.hpp"
#include "runtime/execution/executable.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {

// The interpreter, and what this machine runs by default.
inline std::vector<Target> test_targets() {
  std::vector<Target> targets{Target::interpreter()};
  if (!(resolve(Target::automatic()) == Target::interpreter()))
    targets.push_back(resolve(Target::automatic()));
  return targets;
}

// Records of bytes, whose fields have places of their own: they lie as they are.
inline bool is_record(const TensorSpec& spec, const Tensor& tensor) {
  return tensor.dtype() == u8 && spec.values;
}

// A tensor inside a larger one that is NaN everywhere else (integers: a number that names no block).
struct Planted {
  Tensor whole, inside;

  explicit Planted(const Tensor& values) : Planted(values.shape(), values.dtype()) {
    copy_elements(values, inside.ref());
  }
  Planted(const Shape& shape, DType type) {
    Shape larger = shape;
    for (std::int64_t& extent : larger) extent += 3;
    whole = Tensor::full(larger, type, type.is_floating() ? std::nan("") : type.is_boolean() ? 1 : 1 << 20);
    inside = whole;
    for (int d = 0; d < inside.rank(); ++d)
      inside = inside.slice(d, 1, 1 + shape[static_cast<std::size_t>(d)]);
  }

  // Whether nothing outside was written: fills the inside with the value of the outside and compares.
  bool is_clean_outside() const {
    Tensor expected = Planted(inside.shape(), inside.dtype()).whole;
    Tensor actual = whole.clone();
    Tensor within = actual;
    for (int d = 0; d < within.rank(); ++d)
      within = within.slice(d, 1, 1 + inside.shape()[static_cast<std::size_t>(d)]);
    copy_elements(Tensor::full(inside.shape(), inside.dtype(), std::nan("")), within.ref());
    return equal(actual, expected);
  }
};

// The rows, and every `step`th again with heads before tokens.
template <class Row>
std::vector<Row> in_both_layouts(std::vector<Row> rows, std::size_t step) {
  const std::size_t count = rows.size();
  for (std::size_t i = 0; i < count; i += step) {
    rows.push_back(rows[i]);
    rows.back().options.layout = Layout::bhsd;
  }
  return rows;
}

// A checked call by an operator's struct, whose plan tests change before it runs.
template <class Op>
struct PlannedCall {
  Op op;
  BoundCall bound;
  Launch launch;

  PlannedCall(const OperatorSchema& schema, Op given, BoundCall::Memory memory = BoundCall::Memory::used)
      : op(std::move(given)), bound(schema, &op, memory), launch(bound, Launch::Mode::run) {}
};

inline void expect_close(const std::string& what, const Tensor& result, const Tensor& exact,
                         const Tensor& plain, DType type) {
  const auto wrong = judge(result, exact, plain, type);
  EXPECT_FALSE(wrong) << what << ": " << *wrong;
}

// The sum over what is finite in `a`.
inline double sum_of_products(const Tensor& a, const Tensor& b) {
  const auto x = a.values<double>(), y = b.values<double>();
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::isfinite(x[i])) sum += x[i] * y[i];
  return sum;
}

// The gradient of a loss is that of its values when a few elements of the f64 tensor `of` change, one at a
// time.
inline void expect_differences(const Tensor& of, const Tensor& gradient,
                               const std::function<double()>& loss) {
  constexpr double step = 1e-5;
  const Tensor flat = of.reshape({of.nelements()}), expected = gradient.reshape({gradient.nelements()});
  for (std::int64_t i = 0; i < expected.size(0); i += 1 + expected.size(0) / 3) {
    const double before = flat.at<double>(i);
    flat.at<double>(i) = before + step;
    const double above = loss();
    flat.at<double>(i) = before - step;
    const double below = loss();
    flat.at<double>(i) = before;
    EXPECT_NEAR((above - below) / (2 * step), expected.at<double>(i), 1e-7);
  }
}

inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ArgumentError& error) { return error.what(); }
  return "not refused";
}

inline void expect_refusal(const std::function<void()>& call, const std::string& wanted) {
  const std::string message = refusal(call);
  EXPECT_NE(message.find(wanted), std::string::npos) << "expected '" << wanted << "' in: " << message;
}

}  // namespace tegula::ops

// What tests of gradients of attention share, whichever keys a query sees.
#pragma once
#include "ops/testing/operators.hpp"

namespace tegula::ops {

// Results that a call is given: of the extents of q, k and v, surrounded by values that must stay.
struct PlantedGradients {
  Planted dq, dk, dv;

  PlantedGradients(const Tensor& q, const Tensor& k, const Tensor& v, DType type)
      : dq(q.shape(), type), dk(k.shape(), type), dv(v.shape(), type) {}
  AttentionGradients inside() const { return {dq.inside, dk.inside, dv.inside, {}}; }
  bool are_clean_outside() const {
    return dq.is_clean_outside() && dk.is_clean_outside() && dv.is_clean_outside();
  }
  // The same call gives the same bits again.
  void expect_again(const std::function<void()>& call) const {
    const Tensor before[] = {dq.whole.clone(), dk.whole.clone(), dv.whole.clone()};
    call();
    EXPECT_TRUE(equal(before[0], dq.whole)) << "dq";
    EXPECT_TRUE(equal(before[1], dk.whole)) << "dk";
    EXPECT_TRUE(equal(before[2], dv.whole)) << "dv";
  }
};

inline AttentionGradients gradients_of(const BoundCall& call) {
  return {call.output("dq"), call.output("dk"), call.output("dv"), {}};
}

// `exact` is the formula in f64, `plain` the formula with every step rounded to `type`.
template <class Result, class Formula>
void expect_gradients(const Result& result, const Formula& exact, const Formula& plain, DType type) {
  expect_close("dq", result.dq, exact.dq, plain.dq, type);
  expect_close("dk", result.dk, exact.dk, plain.dk, type);
  expect_close("dv", result.dv, exact.dv, plain.dv, type);
}

template <class Formula>
void expect_differences(const Tensor& q, const Tensor& k, const Tensor& v, const Formula& exact,
                        const std::function<double()>& loss) {
  expect_differences(q, exact.dq, loss);
  expect_differences(k, exact.dk, loss);
  expect_differences(v, exact.dv, loss);
}

}  // namespace tegula::ops

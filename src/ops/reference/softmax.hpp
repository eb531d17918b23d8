// The formula of one head of attention, forward and backward, from which the references are composed.
#pragma once
#include <functional>
#include <limits>
#include <vector>

#include "tegula/tensor.hpp"

namespace tegula::ops::reference {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

// A copy in f64.
Tensor doubles(const TensorRef& tensor);

struct Softmax {
  double scale = 1, softcap = 0;
  double sink = -infinity;
  DType steps = f64;  // what every step is rounded to
  // What weights are rounded to that values are multiplied by, in 8 bits 2^8 times as large; their sum is
  // not.
  DType weights = f64;

  double rounded(double value) const;
  double weight(double value) const;
  // The score of a raw product; its derivative is `slope`.
  double score(double product, double& slope) const;
};

// How often a query sees each of the keys, 0 for not at all: asked for a row of 0, it sets what differs.
using Sight = std::function<void(std::int64_t query, std::vector<double>& times)>;

// q [queries, d], k and v [keys, …], f64.
struct Head {
  Tensor q, k, v;
  Sight times;
};

// out [queries, dv], lse [queries].
void attend(const Softmax& softmax, const Head& head, const TensorRef& out, const TensorRef& lse);

// What is added to; dout and dlse are gradients of the results of attend.
struct HeadGradients {
  TensorRef dq, dk, dv;
  double dsink = 0;
  // Told the gradient of every score that counts, times the score before the cap; may be empty.
  std::function<void(std::int64_t query, std::int64_t key, double value)> scores;
};
void differentiate(const Softmax& softmax, const Head& head, const Tensor& dout, const Tensor& dlse,
                   HeadGradients& gradients);

}  // namespace tegula::ops::reference

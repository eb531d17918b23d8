// What losses of cross-entropy and their gradients are, in double precision.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/schema/schema.hpp"
#include "tegula/ops/cross_entropy.hpp"

namespace tegula::ops {

template <class Op>
inline constexpr bool gives_gradient = std::is_same_v<Op, CrossEntropyAndGradient>;

inline double lse_of(const double* x, std::int64_t classes) {
  double most = x[0], sum = 0;
  for (std::int64_t j = 1; j < classes; ++j) most = std::max(most, x[j]);
  if (most == -std::numeric_limits<double>::infinity()) return most;
  for (std::int64_t j = 0; j < classes; ++j) sum += std::exp(x[j] - most);
  return most + std::log(sum);
}

template <class Op>
void loss_formula(const Bound<Op>& c, Exact& exact) {
  const std::int64_t classes = c.dim("classes");
  const double *x = exact.data("logits"), s = c->label_smoothing;
  const auto* labels = exact["labels"].data_as<std::int32_t>();
  double *loss = exact.data("loss"), *lse = exact.data("lse");
  for (std::int64_t i = 0; i < c.dim("rows"); ++i, x += classes) {
    const bool counts = labels[i] != c->ignore_index;
    double mean = 0;
    for (std::int64_t j = 0; j < classes; ++j) mean += x[j] / static_cast<double>(classes);
    lse[i] = exact.rounded(lse_of(x, classes));
    loss[i] = counts ? (1 - s) * (lse[i] - x[labels[i]]) + (s == 0 ? 0 : s * (lse[i] - mean)) : 0;
    if constexpr (gives_gradient<Op>) {
      double* dlogits = exact.data("dlogits") + i * classes;
      for (std::int64_t j = 0; counts && j < classes; ++j)
        dlogits[j] = c->gradient_scale * (exact.rounded(std::exp(x[j] - lse[i])) -
                                          (j == labels[i] ? 1 - s : 0) - s / static_cast<double>(classes));
    }
  }
}

inline void backward_formula(const Bound<CrossEntropyBackward>& c, Exact& exact) {
  const std::int64_t classes = c.dim("classes");
  const double *x = exact.data("logits"), *dloss = exact.data("dloss"), *dlse = exact.data_if("dlse");
  const double *lse = exact.data("lse"), s = c->label_smoothing;
  const auto* labels = exact["labels"].data_as<std::int32_t>();
  double* dlogits = exact.data("dlogits");
  for (std::int64_t i = 0; i < c.dim("rows"); ++i, x += classes) {
    const double factor = labels[i] != c->ignore_index ? dloss[i] : 0;
    for (std::int64_t j = 0; j < classes; ++j) {
      const double p = exact.rounded(std::exp(x[j] - lse[i]));
      *dlogits++ = factor * (p - (j == labels[i] ? 1 - s : 0) - s / static_cast<double>(classes)) +
                   (dlse ? dlse[i] * p : 0);
    }
  }
}

}  // namespace tegula::ops

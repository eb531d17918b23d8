#include "ops/schema/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tegula::ops {

ResultError error_of(const Tensor& result, const Tensor& exact) {
  const std::vector<double> a = result.values<double>(), b = exact.values<double>();
  double difference = 0, size = 0;
  ResultError error;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    // NaN, and an infinity on one side only, are as wrong as can be.
    const double distance = std::abs(a[i] - b[i]);
    const double one = std::isnan(distance) ? HUGE_VAL : distance;
    error.largest = std::max(error.largest, one);
    difference += one * one, size += b[i] * b[i];
  }
  error.norm = difference == 0 ? 0 : std::sqrt(difference / (size == 0 ? 1 : size));
  return error;
}

ResultError allowed_error(const Tensor& exact, const Tensor& plain, DType type) {
  const ResultError own = error_of(plain, exact);
  const double unit = type == f16 ? 0x1p-11 : type == bf16 ? 0x1p-8 : 0x1p-24, few = 2 * unit + 32 * 0x1p-24;
  double top = 1;
  for (double x : exact.values<double>())
    if (std::isfinite(x)) top = std::max(top, std::abs(x));
  return {2 * own.largest + few * top, 2 * own.norm + few};
}

std::optional<std::string> judge(const Tensor& result, const Tensor& exact, const Tensor& plain, DType type) {
  if (result.shape() != exact.shape())
    return fmt::format("{} instead of {}", describe(result.shape()), describe(exact.shape()));
  if (!result.dtype().is_floating())
    return equal(result, exact.to(result.dtype())) ? std::nullopt
                                                   : std::optional<std::string>("other integers");
  const ResultError error = error_of(result, exact), allowed = allowed_error(exact, plain, type);
  if (error.largest <= allowed.largest && error.norm <= allowed.norm) return std::nullopt;
  return fmt::format("an error of {:.3g}, allowed {:.3g}; in norm {:.3g}, allowed {:.3g}", error.largest,
                     allowed.largest, error.norm, allowed.norm);
}

}  // namespace tegula::ops

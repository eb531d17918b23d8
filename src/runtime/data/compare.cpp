#include <fmt/format.h>

#include <cmath>

#include "tegula/error.hpp"
#include "tegula/tensor.hpp"

namespace tegula {
namespace {

// Calls visit(i, a_i, b_i) in row-major order until it returns false.
template <class T, class Visit>
void for_each_pair(const TensorRef& a, const TensorRef& b, const Visit& visit) {
  const auto values = [](const TensorRef& x) {
    return Tensor::adopt(x, nullptr).to(Device::cpu()).to(dtype_of<T>()).contiguous();
  };
  const Tensor x = values(a), y = values(b);
  const T *p = x.data_as<T>(), *q = y.data_as<T>();
  for (std::int64_t i = 0; i < x.nelements(); ++i) {
    if (!visit(i, p[i], q[i])) return;
  }
}

Shape index_of(std::int64_t position, const Shape& shape) {
  Shape index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = position % shape[d];
    position /= shape[d];
  }
  return index;
}

double difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  return std::abs(a - b);
}

bool is_close(double a, double b, double absolute, double relative) {
  const double apart = difference(a, b);
  // An infinite bound would accept an infinity for any number.
  return apart == 0 || (std::isfinite(b) && apart <= absolute + relative * std::abs(b));
}

}  // namespace

std::optional<std::string> first_difference(const TensorRef& a, const TensorRef& b, double absolute,
                                            double relative) {
  if (a.shape != b.shape) {
    return fmt::format("the shapes {} and {} differ", describe(a.shape), describe(b.shape));
  }
  std::optional<std::string> found;
  const auto report = [&](std::int64_t i, auto x, auto y) {
    found = fmt::format("at {}: {} against {}", describe(index_of(i, a.shape)), x, y);
    return false;
  };
  if (a.dtype.is_floating() || b.dtype.is_floating()) {
    for_each_pair<double>(a, b, [&](std::int64_t i, double x, double y) {
      return is_close(x, y, absolute, relative) || report(i, x, y);
    });
  } else {
    // As doubles, large integers that differ would be equal.
    const bool exact = absolute == 0 && relative == 0;
    for_each_pair<std::int64_t>(a, b, [&](std::int64_t i, std::int64_t x, std::int64_t y) {
      const bool same =
          x == y || (!exact && is_close(static_cast<double>(x), static_cast<double>(y), absolute, relative));
      return same || report(i, x, y);
    });
  }
  return found;
}

bool equal(const TensorRef& a, const TensorRef& b) { return !first_difference(a, b); }

bool all_close(const TensorRef& a, const TensorRef& b, double absolute, double relative) {
  return !first_difference(a, b, absolute, relative);
}

double max_abs_difference(const TensorRef& a, const TensorRef& b) {
  if (a.shape != b.shape) {
    throw ArgumentError(
        fmt::format("cannot compare {} with {}: the shapes differ", describe(a), describe(b)));
  }
  double largest = 0;
  for_each_pair<double>(a, b, [&](std::int64_t, double x, double y) {
    const double apart = difference(x, y);
    if (!(apart <= largest)) largest = apart;
    return !std::isnan(largest);
  });
  return largest;
}

}  // namespace tegula

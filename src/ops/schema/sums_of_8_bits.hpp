// Formulas for sums of 8-bit products on tensor cores, which keep as many bits as f16 has, or a few more.
#pragma once
#include <cmath>
#include <cstdint>

namespace tegula::ops {

inline constexpr std::int64_t products_of_8_bits = 32;  // that are added at a time
inline double as_tensor_cores_keep(double sum) {
  int exponent = 0;
  const double fraction = std::frexp(sum, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11);
}

// The sum of product(k) for k in [0, count), exact or as tensor cores form it.
template <class Product>
double sum_of_8_bits(std::int64_t count, bool as_tensor_cores, const Product& product) {
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    sum += product(k);
    const bool is_added = (k + 1) % products_of_8_bits == 0 || k + 1 == count;
    if (as_tensor_cores && is_added) sum = as_tensor_cores_keep(sum);
  }
  return sum;
}

}  // namespace tegula::ops

// What formulas say of sums of 8-bit products on tensor cores, which keep as many bits of them as f16 has, or a few
// more.
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

}  // namespace tegula::ops

// libm in long double beside each device function, and the bound that math.hpp states.
#pragma once
#include <cmath>
#include <limits>

namespace tegula_cpu_testing {

struct MathReference {
  const char* name;
  long double (*exact)(long double);
  double bound;  // units in the last place
};
inline const MathReference math_references[] = {
    {"exp2", [](long double x) { return x < -126 ? 0 : std::exp2(x); }, 1.5},
    {"exp", [](long double x) { return std::exp(x); }, 1.5},
    {"log2", [](long double x) { return std::log2(x); }, 2},
    {"log", [](long double x) { return std::log(x); }, 1.5},
    {"tanh", [](long double x) { return std::tanh(x); }, 2},
    {"sin", [](long double x) { return std::sin(x); }, 2},
    {"cos", [](long double x) { return std::cos(x); }, 2},
    {"erf", [](long double x) { return std::erf(x); }, 1.5},
    {"sqrt", [](long double x) { return std::sqrt(x); }, 0.5},
    {"rsqrt", [](long double x) { return 1 / std::sqrt(x); }, 2},
    {"rcp", [](long double x) { return 1 / x; }, 0.5},
    {"round", [](long double x) { return std::nearbyint(x); }, 0},
    {"floor", [](long double x) { return std::floor(x); }, 0},
    {"ceil", [](long double x) { return std::ceil(x); }, 0},
};

// |y - exact| in units in the last place of the f32 nearest to `exact`; a value beyond the largest float must
// be infinite or, within the bound, the largest float.
inline double ulp_error(float y, long double exact) {
  constexpr long double overflow = 0x1.ffffffp127L;
  if (std::isnan(exact)) return std::isnan(y) ? 0 : INFINITY;
  if (std::isinf(y) || std::isinf(exact)) {
    if (std::isinf(y) && std::fabs(exact) >= overflow && std::signbit(y) == std::signbit(exact)) return 0;
    if (std::isinf(exact)) return INFINITY;
    y = std::copysign(0x1p127f, y), exact -= std::copysign(0x1p127L, y);
  }
  const int exponent = exact == 0 ? -149 : std::max(std::ilogb(exact) - 23, -149);
  const long double error = std::fabs(std::ldexp(static_cast<long double>(y) - exact, -exponent));
  return std::isnan(y) ? INFINITY : static_cast<double>(error);
}

}  // namespace tegula_cpu_testing

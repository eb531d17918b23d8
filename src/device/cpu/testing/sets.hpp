// The instruction sets that this machine can run, as a GoogleTest parameter, and helpers of the sweeps.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "device/cpu/testing/functions.hpp"
#include "runtime/machine/cpu_features.hpp"

namespace tegula_cpu_testing {

inline std::vector<const Functions*> runnable_sets() {
  std::vector<const Functions*> sets;
  for (const Functions* set : {&functions_portable, &functions_avx2, &functions_avx512}) {
    if (set->supported()) sets.push_back(set);
  }
  return sets;
}

// The ways in which this machine can multiply bf16: values of TegulaCall::has_tiles.
inline std::vector<int> ways_of_bf16() {
  std::vector<int> ways = {0};
  if (tegula::has_tile_registers()) ways.push_back(1);
  if (tegula::has_products_of_pairs()) ways.push_back(2);
  return ways;
}

class CpuSet : public testing::TestWithParam<const Functions*> {
 protected:
  const Functions& set = *GetParam();
};

#define TEGULA_ON_ALL_CPU_SETS(Suite)                 \
  INSTANTIATE_TEST_SUITE_P(                           \
      Cpu, Suite, testing::ValuesIn(runnable_sets()), \
      [](const testing::TestParamInfo<const Functions*>& info) { return std::string(info.param->name); })

inline float float_of(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
// Equal bits, or both NaN.
inline bool same(float a, float b) { return bits_of(a) == bits_of(b) || (a != a && b != b); }
inline bool same_value(double a, double b) { return a == b || (a != a && b != b); }

}  // namespace tegula_cpu_testing

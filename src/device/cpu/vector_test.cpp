// Lane arithmetic: the NaN rule, integers that never trap, reductions.
#include <cmath>
#include <limits>
#include <random>

#include "device/cpu/testing/sets.hpp"

namespace tegula_cpu_testing {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
constexpr int lowest = std::numeric_limits<int>::min(), highest = std::numeric_limits<int>::max();

class VectorTest : public CpuSet {};
TEGULA_ON_ALL_CPU_SETS(VectorTest);

float expected_extreme(bool largest, float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  return largest ? std::max(a, b) : std::min(a, b);
}

TEST_P(VectorTest, ExtremesReturnTheOperandThatIsANumber) {
  const float values[] = {-inf, -3, -1e-40f, 0, 1e-40f, 2, inf, nan};
  for (const Binary& f : set.binary) {
    const std::string name = f.name;
    for (float a : values) {
      for (float b : values) {
        if (name.find("_into") != name.npos && std::isnan(a)) continue;  // not allowed as the running value
        const float expected = expected_extreme(name.substr(0, 3) == "max", a, b);
        float as[16], bs[16], ys[16];
        std::fill_n(as, 16, a), std::fill_n(bs, 16, b);
        f.vector(as, bs, ys);
        for (int i = 0; i < set.width; ++i)
          ASSERT_TRUE(same(ys[i], expected)) << name << " " << a << " " << b;
        ASSERT_TRUE(same(f.scalar(a, b), expected)) << name << " " << a << " " << b;
      }
    }
  }
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// In 64 bits nothing overflows; the low half is the wrapped result.
std::int64_t expected_integer(const std::string& op, std::int64_t a, std::int64_t b) {
  if (op == "shl") return b < 0 || b >= 32 ? 0 : a * (std::int64_t(1) << b);
  if (op == "shr") return b < 0 || b >= 32 ? (a < 0 ? -1 : 0) : a >> b;
  if (op == "min") return std::min(a, b);
  if (op == "max") return std::max(a, b);
  if (b == 0) return op == "floordiv" || op == "div" ? 0 : 0;
  if (op == "div") return a / b;
  if (op == "mod") return a % b;
  return op == "floordiv" ? floor_quotient(a, b) : a - floor_quotient(a, b) * b;
}

TEST_P(VectorTest, IntegersWrapAndNeverTrap) {
  const int values[] = {lowest, lowest + 1, -65536, -33, -32, -7,  -1,    0,      1,
                        2,      7,          31,     32,  33,  255, 65536, highest};
  for (const IntegerBinary& f : set.integer) {
    const bool is_signed = f.name[0] == 'i';
    for (int a : values) {
      for (int b : values) {
        const auto wide = [&](int x) { return is_signed ? std::int64_t(x) : std::int64_t(std::uint32_t(x)); };
        const auto expected = unsigned(expected_integer(f.name + 4, wide(a), wide(b)));
        unsigned as[16], bs[16], ys[16];
        std::fill_n(as, 16, unsigned(a)), std::fill_n(bs, 16, unsigned(b));
        f.vector(as, bs, ys);
        for (int i = 0; i < set.width; ++i) ASSERT_EQ(ys[i], expected) << f.name << " " << a << " " << b;
        ASSERT_EQ(f.scalar(unsigned(a), unsigned(b)), expected) << f.name << " " << a << " " << b;
      }
    }
  }
}

TEST_P(VectorTest, BytesOfWordsAreMultiplied) {
  std::mt19937 random(1);
  constexpr unsigned extremes[] = {0u, 0x7f7f7f7fu, 0x80808080u, 0xffffffffu};
  for (int round = 0; round < 200; ++round) {
    unsigned a[16], b[16], y[16];
    for (int i = 0; i < 16; ++i) {
      a[i] = round < 4 ? extremes[round] : unsigned(random());
      b[i] = round < 16 ? extremes[i % 4] : unsigned(random());
    }
    set.sum_of_bytes(a, b, y);
    for (int i = 0; i < set.width; ++i) {
      int expected = -7;
      for (int bit = 0; bit < 32; bit += 8) expected += int(a[i] >> bit & 255) * std::int8_t(b[i] >> bit);
      ASSERT_EQ(int(y[i]), expected) << a[i] << " " << b[i];
    }
  }
}

float expected_reduction(const std::string& name, const float* x, int n) {
  float result = name == "reduce_sum" || name == "reduce_absmax" ? 0 : nan;
  for (int i = 0; i < n; ++i) {
    if (name == "reduce_sum")
      result += x[i];
    else
      result =
          expected_extreme(name != "reduce_min", result, name == "reduce_absmax" ? std::fabs(x[i]) : x[i]);
  }
  return result;
}

TEST_P(VectorTest, ReductionsSeeEveryLaneAndSkipNaN) {
  std::mt19937 random(1);
  for (const Reduction& f : set.reductions) {
    const bool is_sum = std::string(f.name) == "reduce_sum";
    for (int round = 0; round < 200; ++round) {
      float x[16];
      for (float& value : x) value = float(int(random() % 2001) - 1000);
      if (!is_sum) x[random() % set.width] = nan;
      ASSERT_TRUE(same(f.of(x), expected_reduction(f.name, x, set.width))) << f.name;
    }
    const float nans[16] = {nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan};
    EXPECT_TRUE(std::isnan(f.of(nans))) << f.name;
  }
}

}  // namespace
}  // namespace tegula_cpu_testing

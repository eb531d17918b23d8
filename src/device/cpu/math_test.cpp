// The stated errors of the elementary functions, over floats of every exponent and both signs.
#include "device/cpu/testing/math_reference.hpp"
#include "device/cpu/testing/sets.hpp"

namespace tegula_cpu_testing {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

const Unary& function(const Functions& set, const std::string& name) {
  for (const Unary& f : set.math) {
    if (name == f.name) return f;
  }
  throw std::logic_error("no such function");
}

std::vector<float> arguments() {
  std::vector<float> x = {0.0f,      -0.0f, inf, -inf, NAN,  1e-45f, -1e-45f,
                          0x1p-126f, 1,     -1,  0.5f, 1.5f, 2.5f,   -2.5f};
  for (float edge :
       {-151.0f, -150.0f, -149.0f, -126.0f, 127.0f, 128.0f, 129.0f, 88.722839f, -103.97208f, -87.33655f,
        0.625f, 9.0f, 0x1p20f, 0x1p23f, 0x1p22f, 3.14159274f, 1.57079637f, 0x1.6a09e6p-1f}) {
    for (float sign : {1.0f, -1.0f}) {
      x.insert(x.end(), {sign * edge, std::nextafter(sign * edge, inf), std::nextafter(sign * edge, -inf)});
    }
  }
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 4099) x.push_back(float_of(std::uint32_t(bits)));
  while (x.size() % 16) x.push_back(1.0f);
  return x;
}

class MathFunction : public testing::TestWithParam<MathReference> {};

TEST_P(MathFunction, ErrorIsAsStatedOnEverySetAndLaneByLane) {
  const MathReference& reference = GetParam();
  static const std::vector<float> x = arguments();
  std::vector<long double> exact(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) exact[i] = reference.exact(x[i]);
  for (const Functions* set : runnable_sets()) {
    const Unary& f = function(*set, reference.name);
    std::vector<float> y(x.size());
    f.vector(x.data(), y.data(), long(x.size()));
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulp_error(y[i], exact[i]);
      worst = std::max(worst, error);
      ASSERT_LE(error, reference.bound) << set->name << " " << x[i] << " gives " << y[i];
      ASSERT_TRUE(i % 16 >= 2 || same(f.scalar(x[i]), y[i])) << set->name << " one lane at " << x[i];
    }
    RecordProperty(std::string("ulp_") + set->name, std::to_string(worst));
  }
}
INSTANTIATE_TEST_SUITE_P(Cpu, MathFunction, testing::ValuesIn(math_references),
                         [](const testing::TestParamInfo<MathReference>& info) {
                           return std::string(info.param.name);
                         });

class MathTest : public CpuSet {};
TEGULA_ON_ALL_CPU_SETS(MathTest);

TEST_P(MathTest, SpecialValuesAreExact) {
  const auto at = [&](const char* name, float x) { return function(set, name).scalar(x); };
  EXPECT_EQ(bits_of(at("exp2", -inf)), 0u);
  EXPECT_EQ(at("exp2", inf), inf);
  EXPECT_EQ(at("exp", -inf), 0.0f);
  EXPECT_EQ(at("exp", inf), inf);
  EXPECT_EQ(at("log2", 0), -inf);
  EXPECT_EQ(at("log2", -0.0f), -inf);
  EXPECT_EQ(at("log2", inf), inf);
  EXPECT_TRUE(std::isnan(at("log2", -1)));
  EXPECT_TRUE(std::isnan(at("log", -1e-45f)));
  EXPECT_EQ(at("tanh", inf), 1.0f);
  EXPECT_EQ(at("tanh", -inf), -1.0f);
  EXPECT_TRUE(std::isnan(at("sin", inf)));
  for (const Unary& f : set.math) EXPECT_TRUE(std::isnan(f.scalar(NAN))) << f.name;
  for (int n = -149; n < 128; ++n) {
    EXPECT_EQ(at("exp2", float(n)), n < -126 ? 0 : std::ldexp(1.0f, n)) << n;
    EXPECT_EQ(at("log2", std::ldexp(1.0f, n)), float(n)) << n;
  }
}

}  // namespace
}  // namespace tegula_cpu_testing

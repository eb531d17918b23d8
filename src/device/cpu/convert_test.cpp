// Conversions against plain arithmetic in doubles: every value of the small types, and for rounding every
// value, every midpoint between neighbours and the floats beside it, which decides all floats since rounding
// is monotone.
#include <cmath>
#include <limits>

#include "device/cpu/testing/sets.hpp"

namespace tegula_cpu_testing {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

struct Format {
  const char* name;
  int bits, mantissa, bias;
  double largest;
  bool saturates, has_infinity;
};
constexpr Format formats[] = {{"bf16", 16, 7, 127, 0x1.fep127, false, true},
                              {"f16", 16, 10, 15, 65504, false, true},
                              {"e4m3", 8, 3, 7, 448, true, false},
                              {"e5m2", 8, 2, 15, 57344, true, true}};

double decode(const Format& f, unsigned bits) {
  const unsigned magnitude = bits & ((1u << (f.bits - 1)) - 1),
                 fraction = magnitude & ((1u << f.mantissa) - 1);
  const int exponent = int(magnitude >> f.mantissa), all_ones = (1 << (f.bits - 1 - f.mantissa)) - 1;
  double value;
  if (f.has_infinity && exponent == all_ones)
    value = fraction ? NAN : inf;
  else if (!f.has_infinity && magnitude == (1u << (f.bits - 1)) - 1)
    value = NAN;
  else if (exponent == 0)
    value = std::ldexp(fraction, 1 - f.bias - f.mantissa);
  else
    value = std::ldexp(1.0 + std::ldexp(fraction, -f.mantissa), exponent - f.bias);
  return bits >> (f.bits - 1) ? -value : value;
}

// Rounds on the grid of the value's binade; nearbyint takes ties to even.
double rounded(const Format& f, double x) {
  if (std::isnan(x) || x == 0) return x;
  double magnitude = std::fabs(x);
  if (std::isfinite(x)) {
    const int exponent = std::max(std::ilogb(magnitude), 1 - f.bias);
    magnitude =
        std::ldexp(std::nearbyint(std::ldexp(magnitude, f.mantissa - exponent)), exponent - f.mantissa);
  }
  if (magnitude > f.largest) magnitude = f.saturates ? f.largest : inf;
  return std::copysign(magnitude, x);
}

std::vector<float> probes(const Format& f) {
  std::vector<float> x = {0.0f,  -0.0f,  float(inf), -float(inf), NAN,   -NAN,
                          3e38f, -3e38f, 1e-45f,     -1e-45f,     1e-38f};
  for (unsigned bits = 0; bits + 1 < 1u << (f.bits - 1); ++bits) {
    const double low = decode(f, bits), next = decode(f, bits + 1);
    if (!std::isfinite(low)) continue;
    const double high = std::isfinite(next) ? next : low + (low - decode(f, bits - 1));
    const float middle = float(low + (high - low) / 2);
    for (float value : {float(low), middle, std::nextafter(middle, 0.0f), std::nextafter(middle, float(inf)),
                        std::nextafter(float(low), 0.0f), std::nextafter(float(low), float(inf))}) {
      x.push_back(value);
      x.push_back(-value);
    }
  }
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 65521) x.push_back(float_of(std::uint32_t(bits)));
  while (x.size() % 16) x.push_back(1.0f);
  return x;
}

const Storage& storage(const Functions& set, const std::string& name) {
  for (const Storage& s : set.storage) {
    if (s.name == name) return s;
  }
  throw std::logic_error("no such element type");
}

class ConvertTest : public CpuSet {};
TEGULA_ON_ALL_CPU_SETS(ConvertTest);

TEST_P(ConvertTest, LoadsEveryValue) {
  for (const Format& f : formats) {
    const Storage& s = storage(set, f.name);
    for (unsigned bits = 0; bits < 1u << f.bits; ++bits) {
      std::uint16_t wide[16];
      std::uint8_t narrow[16];
      std::fill_n(wide, 16, std::uint16_t(bits)), std::fill_n(narrow, 16, std::uint8_t(bits));
      const void* p = f.bits == 8 ? static_cast<const void*>(narrow) : wide;
      double lanes[16];
      s.load(p, lanes);
      const double expected = decode(f, bits);
      for (int i = 0; i < set.width; ++i)
        ASSERT_TRUE(same_value(lanes[i], expected)) << f.name << " " << bits;
      ASSERT_EQ(std::signbit(lanes[0]), std::signbit(expected) || bits >> (f.bits - 1))
          << f.name << " " << bits;
      ASSERT_TRUE(same_value(s.load1(p), expected)) << f.name << " " << bits;
    }
  }
}

TEST_P(ConvertTest, StoresRoundToNearestEven) {
  for (const Format& f : formats) {
    const Storage& s = storage(set, f.name);
    const std::vector<float> x = probes(f);
    for (std::size_t i = 0; i < x.size(); i += set.width) {
      double lanes[16];
      for (int j = 0; j < set.width; ++j) lanes[j] = x[i + j];
      std::uint8_t memory[32];
      s.store(memory, lanes);
      for (int j = 0; j < set.width; ++j) {
        const float value = x[i + j];
        unsigned bits = 0, alone = 0;
        std::memcpy(&bits, memory + j * s.bytes, s.bytes);
        ASSERT_TRUE(same_value(decode(f, bits), rounded(f, value))) << f.name << " " << value << " " << bits;
        ASSERT_EQ(bits >> (f.bits - 1), bits_of(value) >> 31) << f.name << " " << value;
        s.store1(&alone, value);
        ASSERT_EQ(alone, bits) << f.name << " " << value;
      }
    }
  }
}

TEST_P(ConvertTest, RoundsInRegistersAsStoresDo) {
  for (int t = 0; t < set.rounding.count; ++t) {
    const Unary& round = set.rounding.first[t];
    const Format* f = nullptr;
    for (const Format& candidate : formats) {
      if (std::string("round_") + candidate.name == round.name) f = &candidate;
    }
    ASSERT_NE(f, nullptr);
    const std::vector<float> x = probes(*f);
    std::vector<float> y(x.size());
    round.vector(x.data(), y.data(), long(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_TRUE(same(y[i], float(rounded(*f, x[i])))) << round.name << " " << x[i] << " gives " << y[i];
      ASSERT_TRUE(same(round.scalar(x[i]), y[i])) << round.name << " " << x[i];
    }
  }
}

TEST_P(ConvertTest, HalvesWithoutInstructionsAgree) {
  const Format& f = formats[1];
  const std::vector<float> x = probes(f);
  std::vector<float> y(x.size());
  std::vector<std::uint16_t> bits(x.size());
  set.f16_generic(x.data(), y.data(), bits.data(), long(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_TRUE(same_value(decode(f, bits[i]), rounded(f, x[i]))) << x[i] << " gives " << bits[i];
    ASSERT_TRUE(same(y[i], float(rounded(f, x[i])))) << x[i] << " gives " << y[i];
    std::uint16_t stored = 0;
    storage(set, "f16").store1(&stored, x[i]);
    ASSERT_EQ(bits[i], stored) << x[i] << ": the payload of a NaN differs from the instruction's";
  }
}

double truncated(const std::string& to, float x) {
  const double low = to == "to_i32" ? -0x1p31 : to == "to_i16" ? -32768 : to == "to_i8" ? -128 : 0;
  const double high = to == "to_i32"   ? 0x1p31 - 1
                      : to == "to_u32" ? 0x1p32 - 1
                      : to == "to_i16" ? 32767
                      : to == "to_i8"  ? 127
                                       : 255;
  return std::isnan(x) ? 0 : std::min(std::max(std::trunc(double(x)), low), high);
}

TEST_P(ConvertTest, FloatsToIntegersTruncateAndSaturate) {
  std::vector<float> x = {
      0.5f,     -0.5f,          0.99999994f, -0.99999994f,   127.5f,     128,         -128.9f,
      -129,     255.5f,         256,         32767.5f,       32768,      -32769,      0x1p31f,
      -0x1p31f, 0x1.fffffep30f, 0x1p32f,     0x1.fffffep31f, float(inf), -float(inf), NAN,
      -0.0f};
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 65521) x.push_back(float_of(std::uint32_t(bits)));
  while (x.size() % 16) x.push_back(1.0f);
  for (const FloatToInteger& f : set.to_integer) {
    for (std::size_t i = 0; i < x.size(); i += set.width) {
      double y[16];
      f.vector(&x[i], y);
      for (int j = 0; j < set.width; ++j) {
        ASSERT_EQ(y[j], truncated(f.name, x[i + j])) << f.name << " " << x[i + j];
        ASSERT_EQ(f.scalar(x[i + j]), y[j]) << f.name << " " << x[i + j];
      }
    }
  }
}

// GCC 12 makes truncation of both conversions, which gives -0 above -1.
TEST_P(ConvertTest, IntegersHaveOneZero) {
  for (const double x : {-0.25, -0.0, 0.25, -0.99, 0., -1., -1.5, 3.75, -0x1p40, 0x1p40, double(NAN)}) {
    double of_i32 = 1, of_i64 = 1;
    set.through_integers(&x, &of_i32, &of_i64);
    const double whole = std::isnan(x) ? 0 : std::trunc(x) + 0.;
    EXPECT_EQ(of_i64, whole) << x;
    EXPECT_EQ(of_i32, std::min(std::max(whole, -0x1p31), 0x1p31 - 1)) << x;
    EXPECT_FALSE(whole == 0 && (std::signbit(of_i32) || std::signbit(of_i64))) << x;
  }
}

}  // namespace
}  // namespace tegula_cpu_testing

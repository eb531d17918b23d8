#include "tegula/dtype.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace tegula {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

struct Format {
  DType type;
  int exponent_bits, mantissa_bits;
  double largest, smallest;
  bool saturates;
};
constexpr Format formats[] = {
    {e4m3, 4, 3, 448, 0x1p-9, true},
    {e5m2, 5, 2, 57344, 0x1p-16, true},
    {f16, 5, 10, 65504, 0x1p-24, false},
    {bf16, 8, 7, 0x1.fep127, 0x1p-133, false},
};

// The definition of the formats, written out: (-1)^s 2^(e-bias) (1 + m/2^M).
double reference_decode(const Format& format, unsigned code) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const unsigned mantissa = code & ((1u << format.mantissa_bits) - 1);
  const unsigned exponent = (code >> format.mantissa_bits) & ((1u << format.exponent_bits) - 1);
  const double sign = code >> (format.type.bits() - 1) ? -1 : 1;
  const bool top = exponent == (1u << format.exponent_bits) - 1;
  if (format.type == e4m3 && top && mantissa == 7) return nan_value;
  if (format.type != e4m3 && top) return mantissa ? nan_value : sign * infinity;
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, static_cast<int>(exponent) - bias);
}

class NarrowFloat : public testing::TestWithParam<Format> {};

TEST_P(NarrowFloat, DecodesEveryCode) {
  const Format& format = GetParam();
  for (unsigned code = 0; code < 1u << format.type.bits(); ++code) {
    const double expected = reference_decode(format, code), actual = decode(format.type, code);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << code;
    } else {
      EXPECT_EQ(expected, actual) << code;
      EXPECT_EQ(std::signbit(expected), std::signbit(actual)) << code;
    }
  }
}

TEST_P(NarrowFloat, EncodesWhatItDecodes) {
  const Format& format = GetParam();
  for (unsigned code = 0; code < 1u << format.type.bits(); ++code) {
    const double value = decode(format.type, code);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(decode(format.type, encode(format.type, value)))) << code;
    } else if (std::isinf(value) && format.saturates) {
      EXPECT_EQ(decode(format.type, encode(format.type, value)), std::copysign(format.largest, value));
    } else {
      EXPECT_EQ(encode(format.type, value), code);
      EXPECT_EQ(round_to(format.type, value), value);
    }
  }
}

// Between every two neighbours: the midpoint goes to the even code, everything else to the nearer one.
TEST_P(NarrowFloat, RoundsToNearestEven) {
  const Format& format = GetParam();
  const unsigned half = 1u << (format.type.bits() - 1);
  for (unsigned code = 0; reference_decode(format, code) < format.largest; ++code) {
    const double low = reference_decode(format, code), high = reference_decode(format, code + 1);
    const double middle = (low + high) / 2;
    const unsigned even = code % 2 == 0 ? code : code + 1;
    for (const unsigned sign : {0u, half}) {
      const double s = sign ? -1 : 1;
      EXPECT_EQ(encode(format.type, s * middle), sign | even);
      EXPECT_EQ(encode(format.type, s * std::nextafter(middle, 0)), sign | code);
      EXPECT_EQ(encode(format.type, s * std::nextafter(middle, infinity)), sign | (code + 1));
      EXPECT_EQ(encode(format.type, s * std::nextafter(low, infinity)), sign | code);
      EXPECT_EQ(encode(format.type, s * std::nextafter(high, 0)), sign | (code + 1));
    }
  }
}

TEST_P(NarrowFloat, Extremes) {
  const Format& format = GetParam();
  EXPECT_EQ(round_to(format.type, format.largest), format.largest);
  EXPECT_EQ(round_to(format.type, format.smallest), format.smallest);
  EXPECT_EQ(round_to(format.type, format.smallest / 2), 0);
  EXPECT_EQ(round_to(format.type, std::nextafter(format.smallest / 2, 1)), format.smallest);
  EXPECT_EQ(round_to(format.type, std::numeric_limits<double>::denorm_min()), 0);
  EXPECT_EQ(round_to(format.type, std::numeric_limits<double>::min()), 0);
  EXPECT_TRUE(std::signbit(round_to(format.type, -0.0)));
  EXPECT_TRUE(std::signbit(round_to(format.type, -format.smallest / 4)));
  EXPECT_TRUE(std::isnan(round_to(format.type, nan_value)));
  // The first value that rounds up to 2^k beyond the largest.
  const double ulp = format.largest - reference_decode(format, encode(format.type, format.largest) - 1);
  const double beyond = format.saturates ? format.largest : infinity;
  EXPECT_EQ(round_to(format.type, std::nextafter(format.largest + ulp / 2, 0)), format.largest);
  for (const double value : {format.largest + ulp / 2, 2 * format.largest, 1e300, infinity}) {
    EXPECT_EQ(round_to(format.type, value), beyond) << value;
    EXPECT_EQ(round_to(format.type, -value), -beyond) << value;
  }
}

INSTANTIATE_TEST_SUITE_P(AllFormats, NarrowFloat, testing::ValuesIn(formats),
                         [](const auto& info) { return std::string(info.param.type.name()); });

TEST(DType, Bf16AgreesWithTheUpperHalfOfF32) {
  std::mt19937 random(11);
  for (int i = 0; i < 200'000; ++i) {
    const std::uint32_t bits = random();
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    ASSERT_EQ(encode(bf16, value), rounded) << bits;
  }
}

TEST(DType, WideFloatsKeepTheirBits) {
  EXPECT_EQ(encode(f32, 1.5), 0x3fc00000u);
  EXPECT_EQ(decode(f32, 0x3fc00000u), 1.5);
  EXPECT_EQ(round_to(f32, 1 + 0x1p-24), 1);
  EXPECT_EQ(round_to(f32, 1 + 0x1.8p-24), 1 + 0x1p-23);
  EXPECT_EQ(round_to(f32, 1e300), infinity);
  EXPECT_EQ(round_to(f64, 0.1), 0.1);
  EXPECT_EQ(decode(f64, encode(f64, -0.1)), -0.1);
}

TEST(DType, IntegersTruncateAndSaturate) {
  struct Case {
    DType type;
    double value, expected;
  };
  const Case cases[] = {
      {i8, 127.9, 127},
      {i8, 128, 127},
      {i8, -128.9, -128},
      {i8, -300, -128},
      {i16, -1.9, -1},
      {i16, 1e9, 32767},
      {i32, 2147483648.0, 2147483647.0},
      {i32, -3e9, -0x1p31},
      {u8, -1, 0},
      {u8, -0.5, 0},
      {u8, 255.9, 255},
      {u32, 5e9, 4294967295.0},
      {u32, infinity, 4294967295.0},
      {i64, 1e30, 0x1p63},
      {i64, -infinity, -0x1p63},
      {i32, nan_value, 0},
      {boolean, 0.25, 1},
      {boolean, -0.0, 0},
      {boolean, nan_value, 1},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(decode(c.type, encode(c.type, c.value)), c.expected) << c.type.name() << " " << c.value;
  }
}

TEST(DType, EncodedBitsFitTheWidth) {
  for (const DType type : all_dtypes) {
    for (const double value : {-1.0, -1e30, 1e30, 0.5, infinity, -infinity, nan_value}) {
      if (type.bits() < 64) { EXPECT_EQ(encode(type, value) >> type.bits(), 0u) << type.name(); }
    }
  }
}

}  // namespace
}  // namespace tegula

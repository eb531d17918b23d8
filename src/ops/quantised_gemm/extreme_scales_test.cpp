// Scales at the ends of their ranges: rows of x with one 1 each show the weights themselves. Those of MXFP4
// and NVFP4, and of groups that no step has alone, are multiplied in pairs of bf16.
#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "ops/decode/testing/call.hpp"

namespace tegula::ops {
namespace extreme_scales_test {

struct Format {
  std::string words;
  std::vector<double> scales;  // in turn
  int group;                   // 0: a row has one scale
};

// Zeros, infinities, NaN, large numbers, and small ones down to the least, of bf16.
std::vector<double> ends_of_bf16() {
  std::vector<double> result{0, -0., INFINITY, -INFINITY, NAN, 1, -3, 0x1p127, -0x1p100};
  for (const int above : {0, 1, 3, 6, 7, 8, 9, 12}) result.push_back(std::ldexp(1, above - 133));
  return result;
}

// `largest` of the scales of a row, or one that is no number.
using Judge = std::function<bool(double largest, double expected, double result)>;

void compare(const Format& format, const char* packed, const Judge& is_right) {
  constexpr int rows = 16, n = 40, k = 128;
  const int groups = format.group == 0 ? 1 : k / format.group;
  decode_test::Call call("quantised_gemm",
                         fmt::format("...={} k={} n={} groups={} group={} bf16 out_dtype=f32 format={} {}",
                                     rows, k, n, groups, format.group, format.words, packed));
  Tensor x = call.inputs.at("a"), scales = call.inputs.at("scales");
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < k; ++j) x.set({i, j}, i == j ? 1 : 0);
  for (int i = 0; i < groups * n; ++i)
    scales.set({i / n, i % n}, format.scales[static_cast<std::size_t>(i) % format.scales.size()]);
  const Tensor expected = call.on(Target::interpreter()).at("out"),
               out = call.on(Target::emulated_sm90()).at("out");
  for (int j = 0; j < n; ++j) {
    double largest = 0;
    for (int g = 0; g < groups; ++g)
      if (const double own = std::abs(scales.get({g, j})); !(own <= largest) && !std::isnan(largest))
        largest = own;
    for (int i = 0; i < rows; ++i) {
      const double a = expected.get({i, j}), b = out.get({i, j});
      EXPECT_TRUE(is_right(largest, a, b)) << format.words << ": " << a << " " << b;
    }
  }
}

void expect_weights(const Format& format, const char* packed) {
  compare(format, packed,
          [](double, double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); });
}

TEST(ExtremeScales, GiveTheSameWeights) {
  const std::vector<double> powers{0, 1, 2, 5, 8, 127, 200, 252, 253, 255},
      eighths{0, 0x1p-9, 448, -448, 1, NAN};
  for (const char* packed : {"", "packed"}) {
    expect_weights({"mxfp4 scales:u8", powers, 32}, packed);
    expect_weights({"nvfp4 scales:e4m3", eighths, 16}, packed);
    expect_weights({"int4 scales:bf16", ends_of_bf16(), 16}, packed);
    expect_weights({"uint4 scales:bf16", ends_of_bf16(), 16}, packed);
  }
}

// Weights that share a scale are scaled before they are rounded, or all at once as a sum: a row whose scale
// is not finite, or so large that weights are not, is infinite or NaN either way; others differ by the
// rounding.
TEST(ExtremeScales, OfSumsDifferByTheRoundingOfWeights) {
  const auto is_right = [](double largest, double a, double b) {
    if (!std::isfinite(largest)) return !std::isfinite(a) && !std::isfinite(b);
    if (largest > 0x1p124) return true;
    return std::abs(a - b) <= std::ldexp(std::abs(a), -8) + 0x1p-133;
  };
  for (const char* format : {"int4 scales:bf16", "uint4 scales:bf16"})
    for (const int group : {0, 64}) compare({format, ends_of_bf16(), group}, "packed", is_right);
}

}  // namespace extreme_scales_test
}  // namespace tegula::ops

// Scales of MXFP4 and NVFP4 at the ends of their ranges, where numbers are multiplied in pairs of bf16: rows
// of x with one 1 each show the weights themselves.
#include <fmt/format.h>

#include <cmath>

#include "ops/decode/testing/call.hpp"

namespace tegula::ops {
namespace extreme_scales_test {

struct Format {
  std::string words;
  std::vector<double> scales;  // in turn
  int group = 32;
};

// Of floats: zeros, infinities, NaN, the largest number, and small ones down to the least.
std::vector<double> ends_of(const std::string& type) {
  std::vector<double> result{0, -0., INFINITY, -INFINITY, NAN, 1, -3};
  const int least = type == "f16" ? -24 : type == "bf16" ? -133 : -149;
  for (const int above : {0, 1, 3, 6, 7, 8, 9, 12}) result.push_back(std::ldexp(1, least + above));
  for (const double most : {type == "f16" ? 65504. : 0x1.fep127, type == "f16" ? 0x1p15 : 0x1p127, -0x1p14})
    result.push_back(most);
  return result;
}

void expect_weights(const Format& format, const char* packed) {
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
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < n; ++j) {
      const double a = expected.get({i, j}), b = out.get({i, j});
      EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << format.words << ": " << a << " " << b;
    }
}

TEST(ExtremeScales, GiveTheSameWeights) {
  const std::vector<double> powers{0, 1, 2, 5, 8, 127, 200, 252, 253, 255},
      eighths{0, 0x1p-9, 448, -448, 1, NAN};
  for (const char* packed : {"", "packed"}) {
    expect_weights({"mxfp4 scales:u8", powers}, packed);
    expect_weights({"nvfp4 scales:e4m3", eighths, 16}, packed);
    for (const char* format : {"int4", "uint4"})
      for (const int group : {16, 32})
        expect_weights({fmt::format("{} scales:{}", format, "bf16"), ends_of("bf16"), group}, packed);
  }
}

}  // namespace extreme_scales_test
}  // namespace tegula::ops

// Products of 8-bit integers by tensor cores: exact beside the interpreter, also beyond 2^24, where f32 is
// not.
#include <gtest/gtest.h>

#include "codegen/cuda/testing/nvrtc.hpp"
#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace integer_products_test {

constexpr std::chrono::seconds most_time{60};

struct IntegerProduct {
  const char* name;
  DType type;
  int m, n, depth, steps;
  const char* instruction;  // in the text
  int low = -128, high = 128;
};

lang::Kernel product_of(const IntegerProduct& c) {
  using namespace lang;
  return kernel("integer_product", [&] {
    lang::Tensor a = input("a", {c.m, c.depth * c.steps}, c.type),
                 b = input("b", {c.n, c.depth * c.steps}, c.type), out = output("out", {c.m, c.n}, f32);
    grid(1, [&](Index) {
      Fragment sum({c.m, c.n}, i32, 3);
      pipelined(c.steps, {.stages = 2}, [&](Index k) {
        Shared a_tile({c.m, c.depth}, c.type), b_tile({c.n, c.depth}, c.type);
        copy(a.at(0, k * c.depth), a_tile);
        copy(b.at(0, k * c.depth), b_tile);
        gemm(a_tile, b_tile.T(), sum);
      });
      Fragment low_part({c.m, c.n}, f32);
      parallel(low_part, [&](Index i, Index j) { low_part(i, j) = f32(sum(i, j) % 65536); });
      copy(low_part, out.at(0, 0));
    });
  });
}

class IntegerProducts : public ::testing::TestWithParam<IntegerProduct> {};

TEST_P(IntegerProducts, AreExact) {
  const Watchdog watchdog("integer products", most_time);
  const IntegerProduct& c = GetParam();
  const lang::Kernel program = product_of(c);
  const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
  EXPECT_NE(text.find(c.instruction), std::string::npos);
  if (const auto* nvrtc = codegen::testing::Nvrtc::find()) {
    const codegen::testing::Compiled compiled = nvrtc->compile(text, 90);
    EXPECT_TRUE(compiled.ok) << compiled.log;
    EXPECT_EQ(compiled.log.find("serializ"), std::string::npos) << compiled.log;
  }
  const Shape a{c.m, c.depth * c.steps}, b{c.n, c.depth * c.steps};
  expect_as_interpreted(program,
                        {Tensor::random_integers(a, i32, 1, c.low, c.high).to(c.type),
                         Tensor::random_integers(b, i32, 2, c.low, c.high).to(c.type)},
                        {c.m, c.n}, 0);
}

const IntegerProduct cases[] = {
    {"signed", i8, 64, 48, 64, 3, "wgmma_n48_s8("},
    {"unsigned_ring_of_128", u8, 128, 64, 128, 2, "wgmma_n64_u8(", 0, 256},
    {"large_sums", i8, 64, 32, 256, 5, "wgmma_n32_s8(", 126, 128},
    {"exchanged", i8, 16, 64, 64, 2, "wgmma_n16_s8("},
};
INSTANTIATE_TEST_SUITE_P(All, IntegerProducts, ::testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace integer_products_test
}  // namespace tegula::emulation

// Sums of f16: by warp groups and by warps, in words where the program only fills and reads them and else in
// registers that are rounded, beside the interpreter.
#include <gtest/gtest.h>

#include "codegen/cuda/testing/nvrtc.hpp"
#include "emulation/testing/two_ways.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace sums_of_f16_test {

constexpr std::chrono::seconds most_time{60};

struct HalfSum {
  const char* name;
  int m, n, depth, steps;
  const char* text;  // in the generated code
  int architecture = 90;
  bool scaled = false;  // the sums are multiplied in every step
  bool from_registers = false;
  float first = 0;
};

lang::Kernel product_of(const HalfSum& c) {
  using namespace lang;
  return kernel("sum_of_f16", [&] {
    lang::Tensor a = input("a", {c.m, c.depth * c.steps}, f16), b = input("b", {c.n, c.depth * c.steps}, f16),
                 out = output("out", {c.m, c.n}, f32);
    grid(1, [&](Index) {
      Fragment sum({c.m, c.n}, f16, c.first);
      pipelined(c.steps, {.stages = 2}, [&](Index k) {
        Shared a_tile({c.m, c.depth}, f16), b_tile({c.n, c.depth}, f16);
        copy(a.at(0, k * c.depth), a_tile);
        copy(b.at(0, k * c.depth), b_tile);
        if (c.scaled) parallel(sum, [&](Index i, Index j) { sum(i, j) = sum(i, j) * 0.5f; });
        if (c.from_registers) {
          Fragment own = load(a_tile, {c.m, c.depth});
          gemm(own, b_tile.T(), sum);
        } else {
          gemm(a_tile, b_tile.T(), sum);
        }
      });
      Fragment wide = sum.to(f32);
      parallel(wide, [&](Index i, Index j) { wide(i, j) = wide(i, j) + 1; });
      copy(wide, out.at(0, 0));
    });
  });
}

class SumsOfF16 : public ::testing::TestWithParam<HalfSum> {};

// Integers whose sums f16 holds: equal, however they are rounded.
TEST_P(SumsOfF16, AreTheInterpreters) {
  const Watchdog watchdog("sums of f16", most_time);
  const HalfSum& c = GetParam();
  const lang::Kernel program = product_of(c);
  const std::string text = codegen::print_cuda(Signature(program.ir()), {c.architecture}).text;
  EXPECT_NE(text.find(c.text), std::string::npos) << text;
  if (const auto* nvrtc = codegen::testing::Nvrtc::find()) {
    const codegen::testing::Compiled compiled = nvrtc->compile(text, c.architecture);
    EXPECT_TRUE(compiled.ok) << compiled.log;
    EXPECT_EQ(compiled.log.find("serializ"), std::string::npos) << compiled.log;
  }
  const Shape a{c.m, c.depth * c.steps}, b{c.n, c.depth * c.steps};
  expect_as_interpreted(
      program,
      {Tensor::random_integers(a, i32, 1, -2, 3).to(f16), Tensor::random_integers(b, i32, 2, -2, 3).to(f16)},
      {c.m, c.n}, 0, {c.architecture == 90 ? Target::emulated_sm90() : Target::emulated(), Target::cpu()});
}

void PrintTo(const HalfSum& c, std::ostream* out) { *out << c.name; }

const HalfSum cases[] = {
    {"by_groups", 64, 64, 64, 3, "wgmma_n64_f16_words("},
    {"two_groups_odd_blocks", 128, 72, 32, 3, "wgmma_n72_f16_words(", 90, false, false, 2},
    {"two_blocks_of_rows", 256, 32, 64, 2, "wgmma_n32_f16_words("},
    {"exchanged", 16, 64, 64, 2, "wgmma_n16_f16_words("},
    {"from_registers", 64, 32, 32, 2, "wgmma_n32_f16_words_registers(", 90, false, true},
    {"changed_between", 64, 64, 64, 3, "round_registers<tg::f16>(", 90, true, false, 64},
    {"by_warps", 48, 40, 32, 3, "mma_shared<tg::f16"},
    {"by_warps_of_sm80", 64, 64, 32, 2, "mma_shared<tg::f16", 80},
    {"without_tensor_cores", 12, 20, 24, 2, "round_registers<tg::f16>("},
};
INSTANTIATE_TEST_SUITE_P(All, SumsOfF16, ::testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

// A sum of f32 to which warps have added products takes one of f16 that a warp group holds otherwise.
TEST(WidenedSumsOfF16, AreThoseOfASumThatIsHeldInAnotherWay) {
  const Watchdog watchdog("widened sums", most_time);
  expect_products_in_two_ways(f16, [](const AddProducts& add, lang::Tensor& out) {
    using namespace lang;
    Fragment sum({24, 64}, f16, 0), wide({24, 64}, f32, 0), first({24, 64}, f32);
    add(wide, sum);
    copy(wide, first);
    copy(sum, wide);
    parallel(wide, [&](Index i, Index j) { wide(i, j) = wide(i, j) + first(i, j); });
    copy(wide, out.at(0, 0));
  });
}

}  // namespace sums_of_f16_test
}  // namespace tegula::emulation

// Products of f32 by tensor cores as tf32, and as three such products, and of integers by single warps. Of
// numbers with few bits they are exact, whatever multiplies.
#include <gtest/gtest.h>

#include "codegen/cuda/testing/nvrtc.hpp"
#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace tf32_products_test {

constexpr std::chrono::seconds most_time{60};

struct Case {
  const char* name;
  lang::Precision precision;
  int m, n, depth, steps;
  bool transpose_a, transpose_b;
  const char* instruction;  // in the text
  int high = 1024;          // of the left operand's numbers
  int architecture = 90;
  DType type = f32;
  bool from_fragment = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

lang::Kernel product_of(const Case& c) {
  using namespace lang;
  return kernel("tf32_product", [&] {
    const int k = c.depth * c.steps;
    lang::Tensor a = c.transpose_a ? input("a", {k, c.m}, c.type) : input("a", {c.m, k}, c.type),
                 b = c.transpose_b ? input("b", {c.n, k}, c.type) : input("b", {k, c.n}, c.type),
                 out = output("out", {c.m, c.n}, f32);
    grid(1, [&](Index) {
      const DType held = c.type.is_floating() ? f32 : i32;
      Fragment sum({c.m, c.n}, held, 3);
      pipelined(c.steps, {.stages = 2}, [&](Index step) {
        Shared a_tile({c.transpose_a ? c.depth : c.m, c.transpose_a ? c.m : c.depth}, c.type),
            b_tile({c.transpose_b ? c.n : c.depth, c.transpose_b ? c.depth : c.n}, c.type);
        Expr at = step * c.depth;
        copy(c.transpose_a ? a.at(at, 0) : a.at(0, at), a_tile);
        copy(c.transpose_b ? b.at(0, at) : b.at(at, 0), b_tile);
        const lang::GemmOptions options{.precision = c.precision};
        const auto right = [&]() -> Shared { return c.transpose_b ? b_tile.T() : std::move(b_tile); };
        if (c.from_fragment) {
          Fragment left = clone(a_tile);
          gemm(left, right(), sum, options);
        } else if (c.transpose_a) {
          gemm(a_tile.T(), right(), sum, options);
        } else {
          gemm(a_tile, right(), sum, options);
        }
      });
      copy(map(sum, [&](Index i, Index j) { return f32(sum(i, j)); }), out.at(0, 0));
    });
  });
}

class Tf32Products : public ::testing::TestWithParam<Case> {};

TEST_P(Tf32Products, AreExactOfFewBits) {
  const Watchdog watchdog("products of tf32", most_time);
  const Case& c = GetParam();
  const lang::Kernel program = product_of(c);
  const std::string text = codegen::print_cuda(Signature(program.ir()), {c.architecture}).text;
  EXPECT_NE(text.find(c.instruction), std::string::npos) << text;
  if (const auto* nvrtc = codegen::testing::Nvrtc::find()) {
    const codegen::testing::Compiled compiled = nvrtc->compile(text, c.architecture);
    EXPECT_TRUE(compiled.ok) << compiled.log;
    EXPECT_EQ(compiled.log.find("serializ"), std::string::npos) << compiled.log;
  }
  const int k = c.depth * c.steps, most = c.type == f32 ? 3 : 100;
  const Tensor a = Tensor::random_integers({c.m, k}, i32, 1, -c.high, c.high).to(c.type),
               b = Tensor::random_integers({c.n, k}, i32, 2, -most, most).to(c.type);
  const Tensor left = c.transpose_a ? a.transpose(0, 1).contiguous() : a,
               right = c.transpose_b ? b : b.transpose(0, 1).contiguous();
  const Target emulated = c.architecture == 90 ? Target::emulated_sm90() : Target::emulated();
  expect_as_interpreted(program, {left, right}, {c.m, c.n}, 0, {emulated, Target::cpu()});
  // The interpreter beside plain sums.
  const Tensor out = Tensor::full({c.m, c.n}, f32, NAN);
  compile(program, Target::interpreter())(left, right, out);
  for (int i = 0; i < c.m; i += 7)
    for (int j = 0; j < c.n; j += 5) {
      double sum = 3;
      for (int x = 0; x < k; ++x) sum += a.get({i, x}) * b.get({j, x});
      ASSERT_EQ(out.get({i, j}), sum) << i << ", " << j;
    }
}

constexpr auto one = lang::Precision::tf32, three = lang::Precision::tf32x3, none = lang::Precision::ieee;
constexpr int bits_21 = 1 << 15;  // with the sums of 24
const Case cases[] = {
    {"by_groups", one, 64, 48, 32, 3, false, true, "wgmma_n48_tf32("},
    {"rings_of_64", one, 128, 64, 64, 2, false, true, "wgmma_n64_tf32("},
    {"exchanged", one, 16, 64, 32, 2, false, true, "wgmma_n16_tf32("},
    {"across_k", one, 64, 32, 32, 2, true, false, "wgmma_n32_tf32("},
    {"from_registers", one, 64, 32, 32, 2, false, true, "wgmma_n32_tf32(", 1024, 90, f32, true},
    {"by_warps", one, 48, 24, 16, 2, false, true, "mma_shared<tg::tf32"},
    {"before_hopper", one, 64, 32, 32, 2, false, true, "SwizzledWords<float", 1024, 80},
    {"across_k_before_hopper", one, 32, 40, 16, 2, true, false, "tg::numbers", 1024, 80},
    {"three_by_groups", three, 64, 48, 32, 2, false, true, "wgmma_n48_tf32(", bits_21},
    {"three_across_k", three, 64, 64, 32, 2, true, false, "wgmma_n64_tf32(", bits_21},
    {"three_from_registers", three, 64, 32, 32, 2, false, true, "wgmma_n32_tf32(", bits_21, 90, f32, true},
    {"three_before_hopper", three, 32, 32, 32, 2, false, false, "mma_shared<tg::tf32", bits_21, 80},
    {"integers_before_hopper", none, 64, 32, 64, 2, false, true, "SwizzledWords<int8_t", 128, 80, i8},
    {"integers_across_k", none, 64, 40, 32, 2, true, false, "tg::fours", 128, 90, i8},
    {"odd_depth_of_integers", none, 20, 24, 20, 2, false, true, "tg::fours", 128, 80, i8},
};
INSTANTIATE_TEST_SUITE_P(All, Tf32Products, ::testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

// Numbers of 24 bits: of what the precisions keep, by how much sums may err.
TEST(Tf32Products, ErrAsStated) {
  const Watchdog watchdog("errors of tf32", most_time);
  for (const auto& [precision, bound] : {std::pair{one, 0x1p-9}, {three, 0x1p-19}}) {
    const Case c{"", precision, 64, 32, 32, 4, false, true, ""};
    const lang::Kernel program = product_of(c);
    const Tensor a = Tensor::random_normal({64, 128}, f32, 1), b = Tensor::random_normal({32, 128}, f32, 2);
    for (const Target target :
         {Target::interpreter(), Target::cpu(), Target::emulated_sm90(), Target::emulated()}) {
      const Tensor out = Tensor::full({64, 32}, f32, NAN);
      compile(program, target)(a, b, out);
      for (int i = 0; i < 64; ++i)
        for (int j = 0; j < 32; ++j) {
          double sum = 3, magnitude = 3;
          for (int x = 0; x < 128; ++x) {
            sum += a.get({i, x}) * b.get({j, x});
            magnitude += std::fabs(a.get({i, x}) * b.get({j, x}));
          }
          ASSERT_NEAR(out.get({i, j}), sum, magnitude * (bound + 0x1p-21)) << i << ", " << j;
        }
    }
  }
}

}  // namespace tf32_products_test
}  // namespace tegula::emulation

// Products of 8-bit operands that do not go along k: producers turn them, in whole tiles and where tensors end.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace turned_operands_test {

constexpr std::chrono::seconds most_time{60};

struct Turned {
  const char* name;
  DType type;
  bool left = false;        // the left operand, too
  bool by_program = false;  // the program's copy turns the tile
};

void PrintTo(const Turned& c, std::ostream* out) { *out << c.name; }

lang::Kernel product(const Turned& c) {
  using namespace lang;
  return kernel("turned_operands", [&] {
    Dim m("m"), n("n"), k("k");
    lang::Tensor a = c.left ? input("a", {k, m}, c.type) : input("a", {m, k}, c.type), b = input("b", {k, n}, c.type),
                 out = output("out", {m, n}, f32);
    grid(ceildiv(m, 64), ceildiv(n, 64), {.threads = 128}, [&](Index x, Index y) {
      Fragment sum({64, 64}, c.type.is_integer() ? i32 : f32, 0);
      pipelined(ceildiv(k, 128), {.stages = 2}, [&](Index step) {
        Shared left = c.left ? Shared({128, 64}, c.type) : Shared({64, 128}, c.type);
        Shared right = c.by_program ? Shared({64, 128}, c.type) : Shared({128, 64}, c.type);
        copy(c.left ? a.at(step * 128, x * 64) : a.at(x * 64, step * 128), left);
        if (c.by_program)
          copy(b.at(step * 128, y * 64), right.T());
        else
          copy(b.at(step * 128, y * 64), right);
        const auto multiply = [&](const auto& x) {
          c.by_program ? gemm(x, right.T(), sum) : gemm(x, right, sum);
        };
        c.left ? multiply(left.T()) : multiply(left);
      });
      parallel(sum, [&](Index i, Index j) { out(x * 64 + i, y * 64 + j) = f32(sum(i, j)); });
    });
  });
}

class TurnedOperands : public ::testing::TestWithParam<Turned> {};

TEST_P(TurnedOperands, GiveTheSame) {
  const Watchdog watchdog("turned operands", most_time);
  const Turned& c = GetParam();
  const lang::Kernel kernel = product(c);
  const std::string text = text_with_roles(kernel);
  EXPECT_NE(text.find("tg::turned_bytes("), std::string::npos);
  EXPECT_NE(text.find("wgmma_n64_"), std::string::npos);
  for (const auto& [m, n, k] : {std::tuple(64, 128, 256), {70, 80, 144}, {64, 63, 100}})
    expect_as_interpreted(kernel,
                          {Tensor::random_integers(c.left ? Shape{k, m} : Shape{m, k}, c.type, 1, 0, 3),
                           Tensor::random_integers({k, n}, c.type, 2, 0, 3)},
                          {m, n}, 0);
}

INSTANTIATE_TEST_SUITE_P(Table, TurnedOperands,
                         ::testing::Values(Turned{"right", e4m3}, Turned{"both", e5m2, true}, Turned{"integers", i8},
                                           Turned{"by_program", e4m3, false, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace turned_operands_test
}  // namespace tegula::emulation

// Products of 8-bit operands that do not go along k: warps of a producer transpose what the copy engine
// brings, or threads turn what they copy, in whole tiles and where tensors end.
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
  int columns = 64, depth = 128, threads = 128;
  bool cut = false;     // threads copy a, and turn b
  bool listed = false;  // matrices of b by a list
  bool uneven = false;  // steps of blocks by a list, so that the producer hands blocks out
};

void PrintTo(const Turned& c, std::ostream* out) { *out << c.name; }

lang::Kernel product(const Turned& c) {
  using namespace lang;
  const int rows = c.threads / 2;
  return kernel("turned_operands", [&] {
    Dim m("m"), n("n"), k("k");
    lang::Tensor a = c.left ? input("a", {k, m}, c.type) : input("a", {m, k}, c.type),
                 b = input("b", {2, k, n}, c.type), list = input("list", {8}, i32),
                 out = output("out", {m, n}, f32);
    grid(ceildiv(m, rows), ceildiv(n, c.columns), {.threads = c.threads}, [&](Index x, Index y) {
      Fragment sum({rows, c.columns}, c.type.is_integer() ? i32 : f32, 0);
      const Expr all_steps = ceildiv(k, c.depth);
      pipelined(c.uneven ? min(all_steps, list(x) + 1) : all_steps, {.stages = 2}, [&](Index step) {
        Shared left = c.left ? Shared({c.depth, rows}, c.type) : Shared({rows, c.depth}, c.type);
        Shared right =
            c.by_program ? Shared({c.columns, c.depth}, c.type) : Shared({c.depth, c.columns}, c.type);
        if (c.left)
          copy(a.at(step * c.depth, x * rows), left);
        else
          copy((c.cut ? a.slice(range(0, m - 1)) : a).at(x * rows, step * c.depth), left);
        const lang::Tensor own = b.slice(c.listed ? Expr(list(step)) : Expr(1));
        if (c.by_program)
          copy(own.at(step * c.depth, y * c.columns), right.T());
        else
          copy(own.at(step * c.depth, y * c.columns), right);
        const auto multiply = [&](const auto& x) {
          c.by_program ? gemm(x, right.T(), sum) : gemm(x, right, sum);
        };
        c.left ? multiply(left.T()) : multiply(left);
      });
      parallel(sum, [&](Index i, Index j) { out(x * rows + i, y * c.columns + j) = f32(sum(i, j)); });
    });
  });
}

class TurnedOperands : public ::testing::TestWithParam<Turned> {};

TEST_P(TurnedOperands, GiveTheSame) {
  const Watchdog watchdog("turned operands", most_time);
  const Turned& c = GetParam();
  const lang::Kernel kernel = product(c);
  const std::string text = text_with_roles(kernel);
  EXPECT_EQ(text.find("tg::transpose_bytes<") != std::string::npos, !c.cut);
  EXPECT_EQ(text.find("tg::store_turned<") != std::string::npos, c.cut);
  EXPECT_NE(text.find("wgmma_n"), std::string::npos);
  for (const auto& [m, n, k] : {std::tuple(64, 128, 256), {70, 80, 144}, {64, 63, 100}})
    expect_as_interpreted(kernel,
                          {Tensor::random_integers(c.left ? Shape{k, m} : Shape{m, k}, c.type, 1, 0, 3),
                           Tensor::random_integers({2, k, n}, c.type, 2, 0, 3),
                           Tensor::from<std::int32_t>({1, 0, 1, 1, 0, 1, 0, 0})},
                          {m, n}, 0);
}

const Turned all_turned[] = {
    {"right", e4m3},
    {"both", e5m2, true},
    {"integers", i8},
    {"by_program", e4m3, false, true},
    {"two_groups", e4m3, false, false, 128, 128, 256},
    {"two_groups_beside_a_cut_tile", e4m3, false, false, 128, 128, 256, true},
    {"two_groups_of_the_program", i8, false, true, 128, 128, 256},
    {"blocks_of_64", e4m3, false, false, 128, 64, 256},
    {"many_pieces_of_a_thread", i8, false, false, 256, 128, 256},
    {"matrices_of_a_list", e5m2, false, false, 128, 128, 256, false, true},
    {"uneven_blocks", e4m3, false, false, 128, 128, 256, false, false, true},
    {"some_columns_of_a_warp", e4m3, false, false, 96, 32, 128},
};

INSTANTIATE_TEST_SUITE_P(Table, TurnedOperands, ::testing::ValuesIn(all_turned),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace turned_operands_test
}  // namespace tegula::emulation

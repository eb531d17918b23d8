// Products whose left operand of 8 bits is read from registers: of an accumulator whose columns are in order,
// which change threads, and in the order that the instruction's registers have, which do not.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace byte_operands_test {

constexpr std::chrono::seconds most_time{60};
constexpr int columns = 48, steps = 3;

enum class Made { in_order, by_quads, by_quads_of_columns };

struct ByteOperand {
  const char* name;
  DType type;
  int rows, depth;  // of the second product
  Made made;
  const char* words;  // in the text: where the operand's words are made
};

void make(const ByteOperand& c, const lang::Fragment& product, lang::Fragment& weights) {
  using namespace lang;
  if (c.made == Made::in_order) {
    parallel(weights, [&](Index i, Index j) { weights(i, j) = product(i, j); });
    return;
  }
  const int runs = c.rows * c.depth / 16;
  const Fragment from = product.reshape({runs, 2, 4, 2});
  Fragment to = weights.reshape({runs, 4, 2, 2});
  parallel(runs, 4, 2, [&](Index run, Index four, Index e) {
    for (int pair = 0; pair < 2; ++pair) to(run, four, pair, e) = from(run, pair, four, e);
  });
}

// out = Σ round(a b_n) d_n, where d_n runs along its rows.
lang::Kernel sum_of_products(const ByteOperand& c) {
  using namespace lang;
  return kernel("byte_operands", [&] {
    lang::Tensor a = input("a", {c.rows, 64}, c.type), b = input("b", {steps * c.depth, 64}, c.type),
                 d = input("d", {columns, steps * c.depth}, c.type),
                 out = output("out", {c.rows, columns}, f32);
    grid(1, [&](Index) {
      Shared a_tile({c.rows, 64}, c.type);
      copy(a.at(0, 0), a_tile);
      Fragment sum({c.rows, columns}, f32, 0);
      pipelined(steps, {.stages = 2}, [&](Index n) {
        Shared b_tile({c.depth, 64}, c.type), d_tile({columns, c.depth}, c.type);
        copy(b.at(n * c.depth), b_tile);
        copy(d.at(0, n * c.depth), d_tile);
        Fragment product({c.rows, c.depth}, f32, 0), weights({c.rows, c.depth}, c.type);
        gemm(a_tile, b_tile.T(), product);
        make(c, product, weights);
        const Shared columns = c.made == Made::by_quads_of_columns ? d_tile.slice(all, range(32, c.depth))
                                                                   : d_tile.slice(all, all);
        const Fragment left = c.made == Made::by_quads_of_columns ? weights.slice(all, range(32, c.depth))
                                                                  : weights.slice(all, all);
        gemm(left, columns.T(), sum, {.accumulate = Accumulate::tensor_core});
      });
      copy(sum, out.at(0, 0));
    });
  });
}

class ByteOperands : public ::testing::TestWithParam<ByteOperand> {};

TEST_P(ByteOperands, MultiplyRight) {
  const Watchdog watchdog("byte operands", most_time);
  const ByteOperand& c = GetParam();
  const lang::Kernel program = sum_of_products(c);
  const std::string text = text_with_roles(program);
  EXPECT_NE(text.find(c.words), std::string::npos) << text;
  EXPECT_NE(text.find("_registers("), std::string::npos) << text;
  expect_as_interpreted(program,
                        {Tensor::random_normal({c.rows, 64}, c.type, 1),
                         Tensor::random_normal({steps * c.depth, 64}, c.type, 2),
                         Tensor::random_normal({columns, steps * c.depth}, c.type, 3)},
                        {c.rows, columns}, 0.5);
}

INSTANTIATE_TEST_SUITE_P(
    Table, ByteOperands,
    ::testing::Values(
        ByteOperand{"by_quads", e4m3, 64, 128, Made::by_quads, "[w] = tg::operand_word<tg::e4m3>(f1_ + "},
        ByteOperand{"by_quads_e5m2", e5m2, 128, 64, Made::by_quads,
                    "[w] = tg::operand_word<tg::e5m2>(f1_ + "},
        ByteOperand{"by_quads_of_three_groups", e4m3, 192, 64, Made::by_quads,
                    "[w] = tg::operand_word<tg::e4m3>(f1_ + "},
        ByteOperand{"columns", e4m3, 64, 64, Made::by_quads_of_columns, "tg::operand_word<tg::e4m3>("},
        ByteOperand{"in_order", e4m3, 64, 96, Made::in_order, "tg::operand_word<tg::e4m3>("}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace byte_operands_test
}  // namespace tegula::emulation

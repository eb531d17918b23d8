// Products whose left operand is rounded right before them are begun with its first columns.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace operand_parts_test {

constexpr std::chrono::seconds most_time{60};
constexpr int rows = 64, columns = 48, steps = 4;

enum class Made { whole, in_halves, transposed };

struct OperandParts {
  const char* name;
  int depth;  // of the second product
  Made made;
  const char* last_part;  // in the text; none if the operand is multiplied as a whole
};

// out = Σ round(a b_n) d_n over all n but 1. In a branch products of neighbouring steps do not overlap.
lang::Kernel sum_of_products(const OperandParts& c) {
  using namespace lang;
  return kernel("operand_parts", [&] {
    lang::Tensor a = input("a", {rows, rows}, bf16), b = input("b", {rows, steps * c.depth}, bf16),
                 d = input("d", {steps * c.depth, columns}, bf16), out = output("out", {rows, columns}, f32);
    grid(1, [&](Index) {
      Shared a_tile({rows, rows}, bf16);
      copy(a.at(0, 0), a_tile);
      Fragment sum({rows, columns}, f32, 0);
      pipelined(steps, {.stages = 2}, [&](Index n) {
        Shared b_tile({rows, c.depth}, bf16), d_tile({c.depth, columns}, bf16);
        copy(b.at(0, n * c.depth), b_tile);
        copy(d.at(n * c.depth, 0), d_tile);
        when(n != 1, [&] {
          Fragment product({rows, c.depth}, f32, 0), weights({rows, c.depth}, bf16);
          gemm(a_tile, b_tile, product);
          if (c.made == Made::transposed)
            parallel(weights, [&](Index i, Index j) { weights(i, j) = product(j, i); });
          else if (c.made == Made::whole)
            parallel(weights, [&](Index i, Index j) { weights(i, j) = product(i, j); });
          else
            for (int half = 0; half < 2; ++half)
              parallel(rows, c.depth / 2, [&](Index i, Index j) {
                weights(i, half * (c.depth / 2) + j) = product(i, half * (c.depth / 2) + j);
              });
          gemm(weights, d_tile, sum);
        });
      });
      copy(sum, out.at(0, 0));
    });
  });
}

class OperandPartsEach : public ::testing::TestWithParam<OperandParts> {};

TEST_P(OperandPartsEach, MultiplyRight) {
  const Watchdog watchdog("operand parts", most_time);
  const OperandParts& c = GetParam();
  const lang::Kernel program = sum_of_products(c);
  const std::string text = text_with_roles(program);
  const auto has = [&](const char* wanted) { return text.find(wanted) != std::string::npos; };
  if (c.last_part != nullptr)
    EXPECT_TRUE(has(c.last_part)) << text;
  else
    EXPECT_FALSE(has("for (int k = 1;") || has("for (int k = 2;")) << text;
  expect_as_interpreted(
      program,
      {Tensor::random_normal({rows, rows}, bf16, 1), Tensor::random_normal({rows, steps * c.depth}, bf16, 2),
       Tensor::random_normal({steps * c.depth, columns}, bf16, 3)},
      {rows, columns}, 0.5);
}

INSTANTIATE_TEST_SUITE_P(
    Table, OperandPartsEach,
    ::testing::Values(OperandParts{"quarters", 64, Made::whole, "for (int k = 3; k < 4; ++k)"},
                      OperandParts{"quarters_of_two_steps", 128, Made::whole, "for (int k = 6; k < 8; ++k)"},
                      OperandParts{"halves", 96, Made::whole, "for (int k = 3; k < 6; ++k)"},
                      OperandParts{"one_step", 16, Made::whole, nullptr},
                      OperandParts{"made_in_halves", 64, Made::in_halves, nullptr},
                      OperandParts{"transposed", 64, Made::transposed, "for (int k = 3; k < 4; ++k)"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace operand_parts_test
}  // namespace tegula::emulation

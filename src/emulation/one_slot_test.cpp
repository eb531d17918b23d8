// Loops whose tiles have one slot: each step multiplies before the next one's tiles come.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace one_slot_test {

constexpr std::chrono::seconds most_time{60};
constexpr int rows = 64, columns = 48, depth = 32, steps = 5;

struct OneSlot {
  const char* name;
  bool a_once;        // its tile is the same in all steps
  bool two_products;  // of a step, of which the second takes what the first gave
};

// c = Σ a_n b_n, or Σ (a_n b_n) d_n.
lang::Kernel sum_of_products(const OneSlot& c) {
  using namespace lang;
  return kernel("one_slot", [&] {
    lang::Tensor a = input("a", {rows, steps * depth}, bf16), b = input("b", {steps * depth, columns}, bf16),
                 d = input("d", {steps * columns, columns}, bf16), out = output("out", {rows, columns}, f32);
    grid(1, [&](Index) {
      Fragment sum({rows, columns}, f32, 0);
      std::optional<Shared> once;
      if (c.a_once) {
        once.emplace(std::initializer_list<int>{rows, depth}, bf16);
        copy(a.at(0, 0), *once);
      }
      pipelined(steps, {.stages = 1}, [&](Index n) {
        Shared b_tile({depth, columns}, bf16);
        std::optional<Shared> a_tile;
        if (!c.a_once) {
          a_tile.emplace(std::initializer_list<int>{rows, depth}, bf16);
          copy(a.at(0, n * depth), *a_tile);
        }
        copy(b.at(n * depth, 0), b_tile);
        const Shared& left = c.a_once ? *once : *a_tile;
        if (!c.two_products) return gemm(left, b_tile, sum);
        Fragment product({rows, columns}, f32, 0);
        gemm(left, b_tile, product);
        Shared d_tile({columns, columns}, bf16);
        copy(d.at(n * columns, 0), d_tile);
        gemm(product.to(bf16), d_tile, sum);
      });
      copy(sum, out.at(0, 0));
    });
  });
}

class OneSlotEach : public ::testing::TestWithParam<OneSlot> {};

TEST_P(OneSlotEach, MultipliesRight) {
  const Watchdog watchdog("one slot", most_time);
  const OneSlot& c = GetParam();
  const lang::Kernel program = sum_of_products(c);
  text_with_roles(program);
  expect_as_interpreted(program,
                        {Tensor::random_normal({rows, steps * depth}, bf16, 1),
                         Tensor::random_normal({steps * depth, columns}, bf16, 2),
                         Tensor::random_normal({steps * columns, columns}, bf16, 3)},
                        {rows, columns}, c.two_products ? 0.2 : 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Table, OneSlotEach,
                         ::testing::Values(OneSlot{"both", false, false}, OneSlot{"a_once", true, false},
                                           OneSlot{"two_products", false, true},
                                           OneSlot{"two_products_a_once", true, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tegula::emulation

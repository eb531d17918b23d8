// Which exits speak for all blocks of a grid.
#include "passes/cuda/exits_of_all.hpp"

#include <gtest/gtest.h>

#include "tegula/lang.hpp"

namespace tegula::passes {
namespace exits_of_all_test {

using namespace lang;

std::size_t number_of(
    const std::function<void(const Index& x, const Tensor& flags, const Tensor& out)>& body) {
  const lang::Kernel program = kernel("exits", [&] {
    Dim n("n");
    Tensor flags = input("flags", {n}, i32), out = output("out", {n}, i32);
    grid(n, [&](Index x) { body(x, flags, out); });
  });
  return exits_of_all_blocks(program.ir()->grids[0]).size();
}

TEST(ExitsOfAllBlocks, AreTheSameForEveryIndex) {
  EXPECT_EQ(number_of([](const Index& x, const Tensor& flags, const Tensor& out) {
              Expr flag = flags(0) + flags(flags.extent(0) - 1);
              exit_if(flag == 0);
              exit_if(flags(flag) == 0);
              out(x) = 1;
            }),
            2u);
}

TEST(ExitsOfAllBlocks, DependOnNoIndex) {
  EXPECT_EQ(number_of([](const Index& x, const Tensor& flags, const Tensor& out) {
              Expr own = flags(x);
              exit_if(own == 0);
              exit_if(flags(own) == 0);
              exit_if(x > 3);
              out(x) = 1;
            }),
            0u);
}

TEST(ExitsOfAllBlocks, StandBeforeAllThatHappens) {
  EXPECT_EQ(number_of([](const Index& x, const Tensor& flags, const Tensor& out) {
              out(x) = 1;
              exit_if(flags(0) == 0);
            }),
            0u);
}

TEST(ExitsOfAllBlocks, ReadNothingThatTheGridWrites) {
  EXPECT_EQ(number_of([](const Index& x, const Tensor&, const Tensor& out) {
              exit_if(out(0) == 0);
              out(x + 1) = 1;
            }),
            0u);
}

}  // namespace
}  // namespace tegula::passes

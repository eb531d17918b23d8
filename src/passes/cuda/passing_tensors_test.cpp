// Which tensors pass by: those of which each block has places of its own, beside what blocks share.
#include "passes/cuda/passing_tensors.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace passing_tensors_test {

using namespace lang;

struct Program {
  bool shares = true;    // the vector's place depends on the step alone
  bool in_steps = true;  // or everything is read at once
  int rows = 1;          // of a block
  int distance = 1;      // between those
};

Kernel products(const Program& p) {
  return kernel("products", [&] {
    Dim N("N"), K("K");
    Tensor w = input("w", {N, K}, f16), x = input("x", {N, K}, f16), y = output("y", {N}, f32);
    grid(N, 2, {.threads = 128}, [&](Index block, Index half) {
      Fragment sum({1024}, f32, 0);
      const auto add = [&](const Expr& step) {
        for (int r = 0; r < p.rows; ++r) {
          Fragment own = load(w.slice(block * p.rows + r * p.distance).at((step * 2 + half) * 1024), {1024});
          Fragment other =
              load(x.slice(p.shares ? Expr(0) : Expr(block)).at((step * 2 + half) * 1024), {1024});
          parallel(sum, [&](Index i) { sum(i) += own(i) * other(i); });
        }
      };
      if (p.in_steps)
        serial(K / 2048, [&](Index step) { add(step); });
      else
        add(0);
      y(block) = reduce_sum(sum).scalar();
    });
  });
}

std::vector<std::string> passing(const Program& p) {
  std::vector<std::string> names;
  const testing::Lowered lowered(products(p));
  for (const ir::Buffer* tensor : lowered.plan.grids[0].passing) names.push_back(tensor->name);
  return names;
}

using Names = std::vector<std::string>;

TEST(PassingTensors, AreReadOnceBesideWhatBlocksShare) {
  EXPECT_EQ(passing({}), Names{"w"});
  EXPECT_EQ(passing({.rows = 2}), Names{"w"});
  EXPECT_EQ(passing({.shares = false}), Names{});
  EXPECT_EQ(passing({.in_steps = false}), Names{});
  EXPECT_EQ(passing({.rows = 2, .distance = 0}), Names{});
}

}  // namespace passing_tensors_test
}  // namespace tegula::passes

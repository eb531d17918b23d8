// Which neighbouring blocks share what they load.
#include "passes/cuda/pair_blocks.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace pair_blocks_test {

using namespace lang;

enum class Form { plain, by_tile_of_both, uneven, columns_first };

testing::Lowered lowered(Form form, bool pairs) {
  return testing::Lowered(kernel("pairs",
                                 [&] {
                                   Dim M("M"), N("N"), K("K");
                                   Tensor a = input("a", {M, K}, bf16), b = input("b", {N, K}, bf16),
                                          steps = input("steps", {N}, i32), c = output("c", {M, N}, f32);
                                   const auto block = [&](const Expr& row, const Expr& column) {
                                     Fragment sum({128, 256}, f32, 0);
                                     const Expr end = form == Form::uneven ? steps(column) : ceildiv(K, 64);
                                     pipelined(end, [&](Index k) {
                                       Shared x({128, 64}, bf16), y({256, 64}, bf16);
                                       copy(a.at(row * 128, k * 64), x);
                                       const Expr first =
                                           form == Form::by_tile_of_both ? column * 256 + row : column * 256;
                                       copy(b.at(first, k * 64), y);
                                       gemm(x, y.T(), sum);
                                     });
                                     copy(sum, c.at(row * 128, column * 256));
                                   };
                                   if (form == Form::columns_first)
                                     grid(ceildiv(N, 256), ceildiv(M, 128), {.threads = 256},
                                          [&](Index column, Index row) { block(row, column); });
                                   else
                                     grid(ceildiv(M, 128), ceildiv(N, 256), {.threads = 256},
                                          [&](Index row, Index column) { block(row, column); });
                                 }),
                          {90, true, pairs});
}

std::optional<Roles> roles_of(Form form, bool pairs) { return lowered(form, pairs).roles(); }

int halved_copies(const Roles& roles) {
  int count = 0;
  for (const auto& [stmt, plan] : roles.copies) count += plan.halved >= 0;
  return count;
}

TEST(PairsOfBlocks, ShareTheLargerTile) {
  const auto roles = roles_of(Form::plain, true);
  ASSERT_TRUE(roles);
  // Neighbours by their rows need the same columns of 256, which is the larger tile.
  EXPECT_EQ(roles->pair_index, 0);
  EXPECT_EQ(roles->cluster(), 2);
  EXPECT_EQ(halved_copies(*roles), 1);
  EXPECT_EQ(roles_of(Form::columns_first, true)->pair_index, 1);
}

TEST(PairsOfBlocks, ShareWhatBothNeedOnly) {
  const auto roles = roles_of(Form::by_tile_of_both, true);
  ASSERT_TRUE(roles);
  EXPECT_EQ(roles->pair_index, 1);
}

TEST(PairsOfBlocks, AreNotWhereBlocksAreUnevenOrTheTargetHasNone) {
  EXPECT_EQ(roles_of(Form::uneven, true)->pair_index, -1);
  EXPECT_EQ(roles_of(Form::plain, false)->pair_index, -1);
  EXPECT_EQ(halved_copies(*roles_of(Form::plain, false)), 0);
}

TEST(PairsOfBlocks, AreNotOfBlocksWhoseStepsAreDealt) {
  const testing::Lowered plain = lowered(Form::plain, false);
  Roles roles = *plain.roles();
  roles.dealt.emplace();
  pair_blocks(plain.grid(), roles);
  EXPECT_EQ(roles.pair_index, -1);
  roles.dealt.reset();
  pair_blocks(plain.grid(), roles);
  EXPECT_EQ(roles.pair_index, 0);
}

}  // namespace pair_blocks_test
}  // namespace tegula::passes

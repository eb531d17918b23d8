// Which tiles of a step take the place of others.
#include "passes/cuda/reuse_tiles.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace reuse_tiles_test {

using namespace lang;

struct ReuseCase {
  const char* name;
  int columns;       // of the tiles that a step makes
  bool overlapping;  // the first of them is read behind the last
  bool of_one_type;
  int stages, made;  // slots of the loads, and tiles that the step has in the end
};

void PrintTo(const ReuseCase& c, std::ostream* out) { *out << c.name; }

// Three tiles that a step makes one after the other, each of the product with the one before.
lang::Kernel chain(const ReuseCase& c) {
  return kernel("chain", [&] {
    Dim N("N");
    Tensor x = input("x", {N, 64}, bf16), y = input("y", {N, c.columns}, bf16),
           out = output("out", {64, c.columns}, f32);
    grid(1, {.threads = 256}, [&](Index) {
      Fragment sum({64, c.columns}, f32, 0);
      pipelined(ceildiv(N, 64), {.stages = 2}, [&](Index step) {
        Shared left({64, 64}, bf16), right({64, c.columns}, bf16), first({64, c.columns}, bf16),
            second({64, c.columns}, bf16), third({64, c.columns}, c.of_one_type ? bf16 : f16);
        copy(x.at(step * 64, 0), left);
        copy(y.at(step * 64, 0), right);
        Fragment a({64, c.columns}, f32, 0), b({64, c.columns}, f32, 0);
        gemm(left, right, a);
        copy(a, first);
        gemm(left, first, b);
        copy(b, second);
        gemm(left, second, sum);
        parallel(sum, [&](Index i, Index j) { third(i, j) = sum(i, j) * 2; });
        parallel(sum, [&](Index i, Index j) { sum(i, j) += third(i, (j + 1) % c.columns); });
        if (c.overlapping)
          parallel(sum, [&](Index i, Index j) { sum(i, j) += first(i, (j + 1) % c.columns); });
      });
      copy(sum, out.at(0, 0));
    });
  });
}

class ReusedTiles : public ::testing::TestWithParam<ReuseCase> {};

TEST_P(ReusedTiles, MakeRoomForSlots) {
  const ReuseCase& c = GetParam();
  const testing::Lowered lowered(chain(c));
  const auto roles = lowered.roles();
  ASSERT_TRUE(roles);
  int made = 0;
  for (const ir::Declare* own : testing::all_of<ir::Declare>(roles->consumer))
    made += own->tile->space == ir::Space::shared && roles->ring_of(own->tile.get()) < 0;
  EXPECT_EQ(made, c.made);
  for (const RingPlan& ring : roles->rings) {
    if (!ring.in_loop) continue;
    EXPECT_EQ(ring.depth, c.stages);
  }
}

const ReuseCase reuse_cases[] = {
    {"where_all_have_room", 128, false, true, 2, 3},
    {"where_slots_lack_it", 384, false, true, 2, 1},
    {"no_more_than_that_takes", 352, false, true, 2, 2},
    {"but_not_while_they_are_needed", 352, true, true, 2, 2},
    {"nor_by_another_type", 352, false, false, 2, 2},
};

INSTANTIATE_TEST_SUITE_P(Programs, ReusedTiles, ::testing::ValuesIn(reuse_cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace reuse_tiles_test
}  // namespace tegula::passes

// Which loads neighbours share, however the place is spelled.
#include "passes/cuda/steady_loads.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace steady_loads_test {

using namespace lang;
using Place = Expr (*)(const Expr& step, const Expr& j);

struct SteadyCase {
  const char* name;
  int run;  // the most neighbours that share the load; 1: none do
  Place place;
};

void PrintTo(const SteadyCase& c, std::ostream* out) { *out << c.name; }

// Rows of 64 weights, each with the number of its group at a place of the row.
lang::Kernel weighed(Place place) {
  return kernel("weighed", [&] {
    Dim N("N"), K("K");
    Tensor x = input("x", {N, K}, f32), numbers = input("numbers", {N, K}, f32),
           out = output("out", {N, K}, f32);
    grid(N, ceildiv(K, 64), [&](Index row, Index step) {
      Fragment own({64}, f32);
      copy(x.slice(row).at(step * 64), own);
      parallel(own, [&](Index j) { own(j) *= numbers(row, place(step, j)); });
      copy(own, out.slice(row).at(step * 64));
    });
  });
}

// The largest power of two, up to 16.
int shared_by(const lang::Kernel& kernel) {
  const CudaPlan plan = plan_for_cuda(*kernel.ir(), {80});
  const ir::Grid& grid = plan.kernel.grids[0];
  int most = 1;
  for (const ir::For* loop : testing::all_of<ir::For>(grid.body)) {
    if (loop->kind != ir::LoopKind::parallel) continue;
    ir::Facts facts;
    for (std::size_t d = 0; d < grid.index.size(); ++d) facts.add_range(grid.index[d], {0, 1 << 30});
    facts.add_index(loop->index.back(), loop->begin.back(), loop->end.back());
    for (int run = 2; run <= 16; run *= 2)
      if (!steady_loads(*loop, run, facts).empty()) most = std::max(most, run);
  }
  return most;
}

const SteadyCase steady_cases[] = {
    {"divided", 16, [](const Expr& step, const Expr& j) { return step * 4 + j / 16; }},
    {"divided_behind_the_sum", 16, [](const Expr& step, const Expr& j) { return (step * 64 + j) / 16; }},
    {"rounded_down", 16, [](const Expr& step, const Expr& j) { return floordiv(step * 64 + j, 16); }},
    {"shifted", 16, [](const Expr& step, const Expr& j) { return (step * 64 + j) >> 4; }},
    {"divided_twice", 16, [](const Expr& step, const Expr& j) { return (step * 64 + j) / 4 / 4; }},
    {"a_larger_group", 16, [](const Expr& step, const Expr& j) { return (step * 64 + j) / 48; }},
    {"a_factor", 8, [](const Expr& step, const Expr& j) { return (step * 128 + j * 2) / 16; }},
    {"groups_of_four", 4, [](const Expr& step, const Expr& j) { return (step * 64 + j) / 4; }},
    {"groups_that_begin_at_four", 4,
     [](const Expr& step, const Expr& j) { return (step * 64 + j + 4) / 16; }},
    {"one_part_of_a_sum", 8,
     [](const Expr& step, const Expr& j) { return step * 64 + max(j / 8, 3) * 2 + j / 16; }},
    {"groups_that_begin_at_one", 1, [](const Expr& step, const Expr& j) { return (step * 64 + j + 1) / 16; }},
    {"groups_of_three", 1, [](const Expr& step, const Expr& j) { return (step * 64 + j) / 3; }},
    {"a_remainder", 1, [](const Expr& step, const Expr& j) { return (step * 64 + j) % 16; }},
    {"not_without_it", 1, [](const Expr& step, const Expr& j) { return (step * 64 + j) / 16 + j; }},
    {"around_zero", 1, [](const Expr& step, const Expr& j) { return max((j - 32) / 16, 0) + step; }},
    {"around_zero_rounded_down", 16,
     [](const Expr& step, const Expr& j) { return max(floordiv(j - 32, 16), 0) + step; }},
    {"without_the_index", 1, [](const Expr& step, const Expr&) { return step; }},
};

class Loads : public ::testing::TestWithParam<SteadyCase> {};

TEST_P(Loads, AreSharedByNeighboursOfAGroup) {
  EXPECT_EQ(shared_by(weighed(GetParam().place)), GetParam().run);
}

INSTANTIATE_TEST_SUITE_P(Table, Loads, ::testing::ValuesIn(steady_cases),
                         [](auto& info) { return std::string(info.param.name); });

// What a store of the loop may have written is loaded where it stands.
TEST(Loads, BehindAStoreAreNotShared) {
  const auto program = [](bool behind) {
    return kernel("scatter", [&] {
      Dim N("N");
      Tensor numbers = input("numbers", {N}, f32), out = output("out", {N}, f32),
             sums = output("sums", {N}, f32);
      grid(ceildiv(N, 64), [&](Index step) {
        Fragment own({64}, f32);
        copy(numbers.at(step * 64), own);
        parallel(own, [&](Index j) {
          if (behind) out(step * 64 + j) = own(j);
          sums(step * 64 + j) = own(j) * numbers((step * 64 + j) / 16);
        });
      });
    });
  };
  EXPECT_EQ(shared_by(program(false)), 16);
  EXPECT_EQ(shared_by(program(true)), 1);
}

}  // namespace steady_loads_test
}  // namespace tegula::passes

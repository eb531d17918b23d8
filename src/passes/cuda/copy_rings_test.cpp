// Which loops without roles have rings, of how many slots, and the events of their steps.
#include "passes/cuda/copy_rings.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "passes/cuda/testing/plans.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::passes {
namespace copy_rings_test {

using namespace lang;

const CudaTarget hopper{90}, ampere{80};

struct Step {
  int rows = 8, stages = 0, threads = 128, products = 0;
};

// Sums of rows, or products with them.
Kernel sums(const Step& c) {
  return kernel("sums", [&] {
    Dim M("M");
    Tensor x = input("x", {M, 64}, f32), out = output("out", {64}, f32);
    grid(1, {.threads = c.threads}, [&](Index) {
      Fragment sum({64}, f32, 0), product({c.rows, c.rows}, f32, 0);
      pipelined(ceildiv(M, c.rows), {.stages = c.stages}, [&](Index i) {
        Shared tile({c.rows, 64}, f32);
        copy(x.at(i * c.rows, 0), tile);
        parallel(sum, [&](Index j) { sum(j) = sum(j) + tile(0, j); });
        if (c.products > 0) gemm(tile, tile.T(), product);
      });
      copy(sum, out);
      parallel(product, [&](Index i, Index j) { out(i) = product(i, j); });
    });
  });
}

std::vector<int> depths(const CudaPlan& plan) {
  std::vector<int> result;
  for (const auto& [loop, ring] : plan.grids[0].copy_rings.loops) result.push_back(ring.depth);
  std::sort(result.begin(), result.end());
  return result;
}

struct DepthCase {
  const char* name;
  Step step;
  std::vector<int> hopper, ampere;
};
void PrintTo(const DepthCase& c, std::ostream* out) { *out << c.name; }

class CopyRingDepths : public ::testing::TestWithParam<DepthCase> {};

TEST_P(CopyRingDepths, FollowTheProgramAndTheRoom) {
  const DepthCase& c = GetParam();
  EXPECT_EQ(depths(testing::Lowered(sums(c.step), hopper).plan), c.hopper);
  EXPECT_EQ(depths(testing::Lowered(sums(c.step), ampere).plan), c.ampere);
}

INSTANTIATE_TEST_SUITE_P(
    Table, CopyRingDepths,
    ::testing::Values(DepthCase{"asked", {.stages = 5}, {5}, {5}}, DepthCase{"one", {.stages = 1}, {}, {}},
                      // 2 KiB a step.
                      DepthCase{"small_steps", {}, {3}, {3}},
                      DepthCase{"small_steps_of_many", {.threads = 1024}, {8}, {8}},
                      // 32 KiB a step.
                      DepthCase{"large_steps", {.rows = 128}, {2}, {2}},
                      DepthCase{"asked_for_too_much", {.rows = 128, .stages = 9}, {7}, {3}},
                      DepthCase{"too_large", {.rows = 480, .threads = 256}, {}, {}},
                      DepthCase{"too_large_elsewhere", {.rows = 256, .threads = 256}, {2}, {}},
                      DepthCase{"products", {.rows = 64, .products = 1}, {3}, {3}}),
    [](const auto& info) { return std::string(info.param.name); });

// A ring in the steps of another one: both are filled anew in each of them.
Kernel nested() {
  return kernel("nested", [] {
    Dim M("M"), N("N");
    Tensor x = input("x", {M, 64}, f32), y = input("y", {N, 64}, f32), out = output("out", {M, 64}, f32);
    grid(1, {.threads = 64}, [&](Index) {
      pipelined(M, {.stages = 2}, [&](Index m) {
        Shared row({1, 64}, f32);
        copy(x.at(m, 0), row);
        Fragment sum({64}, f32, 0);
        parallel(sum, [&](Index i) { sum(i) = row(0, i); });
        pipelined(N, {.stages = 3}, [&](Index n) {
          when(n != m, [&] {
            Shared other({1, 64}, f32);
            copy(y.at(n, 0), other);
            parallel(sum, [&](Index i) { sum(i) = sum(i) + row(0, i) * other(0, i); });
          });
        });
        parallel(sum, [&](Index i) { out(m, i) = sum(i); });
      });
    });
  });
}

// Lines of the schedule without places.
std::string text_of(const schedule::Schedule& s) {
  std::string result;
  std::istringstream lines(schedule::print(s));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != ' ') continue;
    line.resize(std::min(line.size(), line.find("  // ")));
    result += line.substr(2) + "\n";
  }
  return result;
}

TEST(CopyRings, StepsWaitMeetBringAndCompute) {
  const testing::Lowered lowered(sums({.stages = 3}), hopper);
  EXPECT_EQ("\n" + text_of(*lowered.plan.grids[0].schedule), R"(
shared s0 x 3 stages
ring s0, depth 3: s0
let first = 0
let last = ceildiv(M, 8)
loop ahead: 2 times
  if there is such a step
    copy async s0[s0]
  copy commit
  advance s0
advance s0
loop i0: steps of i0 times
  copy wait 1
  barrier 0, 128 threads
  if there is such a step
    copy async s0[s0-1]
  copy commit
  elementwise add: reads s0[s0]
  the step is over: reads s0[s0]
  advance s0
copy wait 0
no copy is on its way: reads s0[s0], reads s0[s0+1], reads s0[s0+2]
)");
}

std::vector<std::string> accepted_mutations(const testing::Lowered& lowered) {
  const schedule::Schedule& s = *lowered.plan.grids[0].schedule;
  std::vector<std::string> accepted;
  for (const auto& all : {schedule::mutations(s), schedule::moves(s)})
    for (const schedule::Mutation& m : all)
      if (!schedule::verify(m.schedule, schedule::thorough)) accepted.push_back(m.name);
  return accepted;
}

TEST(CopyRings, EveryMutationIsRejected) {
  for (const int stages : {2, 3})
    EXPECT_EQ(accepted_mutations(testing::Lowered(sums({.stages = stages}), hopper)),
              std::vector<std::string>{})
        << stages;
  const testing::Lowered lowered(nested(), hopper);
  ASSERT_EQ(depths(lowered.plan), (std::vector{2, 3}));
  // The groups of the inner loop take the copies along.
  EXPECT_EQ(accepted_mutations(lowered), std::vector<std::string>{"all threads 13: copy commit, removed"})
      << schedule::print(*lowered.plan.grids[0].schedule);
}

// The second loop begins with the tiles that the first one leaves in the slots.
Kernel there_and_back_again(int threads) {
  return kernel("there_and_back_again", [&] {
    constexpr int columns = 8192;
    Dim M("M"), N("N");
    Tensor x = input("x", {M, N}, bf16), out = output("out", {M, N}, bf16);
    grid(M, {.threads = threads}, [&](Index row) {
      Fragment sum({columns}, f32, 0);
      Expr count = ceildiv(N, columns);
      pipelined(count, {.stages = 3}, [&](Index i) {
        Fragment own = load(x.slice(row).at(i * columns), {columns}, f32);
        parallel(sum, [&](Index j) { sum(j) += own(j); });
      });
      pipelined(count, {.stages = 3}, [&](Index i) {
        Expr first = (count - 1 - i) * columns;
        Fragment own = load(x.slice(row).at(first), {columns}, f32);
        parallel(own, [&](Index j) { own(j) -= sum(j); });
        copy(own, out.slice(row).at(first));
      });
    });
  });
}

TEST(CopyRings, WhatGoesBackBeginsInTheSlots) {
  const testing::Lowered lowered(there_and_back_again(256), hopper);
  const std::string text = text_of(*lowered.plan.grids[0].schedule);
  EXPECT_EQ(text.substr(text.find("loop i1")), R"(loop i1: steps of i0 times
  step back in ahead
  copy wait 1
  barrier 0, 128 threads
  let again = ceildiv(N, 8192) - 3 - i1
  if there is such a step
    copy async ahead[ahead+1]
  copy commit
  copy: reads ahead[ahead]
  the step is over: reads ahead[ahead]
copy wait 0
no copy is on its way: reads ahead[ahead], reads ahead[ahead+1], reads ahead[ahead+2]
)");
}

// Where the wait of a step stands behind the copies that it begins, it covers those of one more step.
const char* const late_wait = "all threads 21: copy wait 1, behind copy: reads ahead[ahead]";

TEST(CopyRings, EveryMutationOfLoopsThatGoBackIsRejected) {
  for (const int threads : {256, 1024}) {
    const testing::Lowered lowered(there_and_back_again(threads), hopper);
    EXPECT_EQ(accepted_mutations(lowered), std::vector<std::string>{late_wait})
        << schedule::print(*lowered.plan.grids[0].schedule);
  }
}

// Where a block has a processor for itself, and its warps read what they have copied.
TEST(CopyRings, WarpsGoAloneInLargeBlocks) {
  for (const int threads : {512, 1024}) {
    const testing::Lowered lowered(there_and_back_again(threads), hopper);
    const std::string text = text_of(*lowered.plan.grids[0].schedule);
    EXPECT_EQ(text.find("barrier 0") == std::string::npos, threads == 1024) << text;
    EXPECT_EQ(text.find("warp sync") != std::string::npos, threads == 1024) << text;
  }
}

// ---- what keeps a tile where it is used

using Body = std::function<void(const Tensor& x, const Tensor& list, const Tensor& out, Fragment& sum)>;

Kernel with(const Body& body) {
  return kernel("with", [&] {
    Dim M("M"), N("N");
    Tensor x = input("x", {M, 64}, f32), list = input("list", {N}, i32), out = output("out", {N, 64}, f32);
    grid(1, {.threads = 64}, [&](Index) {
      Fragment sum({64}, f32, 0);
      body(x, list, out, sum);
      parallel(sum, [&](Index i) { out(0, i) = sum(i); });
    });
  });
}

void add_row(const Tensor& x, const Expr& row, Fragment& sum) {
  Shared tile({1, 64}, f32);
  copy(x.at(row, 0), tile);
  parallel(sum, [&](Index i) { sum(i) = sum(i) + tile(0, i); });
}

// A row of sums of 9 rows, and these again from the end.
void there_and_back(const std::function<void(const Expr&)>& there,
                    const std::function<void(const Expr&)>& back) {
  pipelined(9, {.stages = 4}, [&](Index i) { there(i); });
  pipelined(9, {.stages = 4}, [&](Index i) { back(8 - i); });
}

struct RingsCase {
  const char* name;
  Body body;
  std::size_t loops, notes;
  int rings = -1;  // of these loops; -1: one each
};
void PrintTo(const RingsCase& c, std::ostream* out) { *out << c.name; }

class CopyRingLoops : public ::testing::TestWithParam<RingsCase> {};

TEST_P(CopyRingLoops, AreThoseThatCanBringTheirTilesAhead) {
  const RingsCase& c = GetParam();
  const testing::Lowered lowered(with(c.body), hopper);
  const CopyRings& rings = lowered.plan.grids[0].copy_rings;
  EXPECT_EQ(rings.loops.size(), c.loops);
  EXPECT_EQ(rings.count(), c.rings < 0 ? static_cast<int>(c.loops) : c.rings);
  EXPECT_EQ(rings.notes.size(), c.notes) << ::testing::PrintToString(passes::format(rings.notes));
}

const RingsCase rings_cases[] = {
    {"plain", [](auto& x, auto&, auto&, auto& sum) { pipelined(9, [&](Index i) { add_row(x, i, sum); }); }, 1,
     0},
    {"serial", [](auto& x, auto&, auto&, auto& sum) { serial(9, [&](Index i) { add_row(x, i, sum); }); }, 0,
     0},
    {"one_step", [](auto& x, auto&, auto&, auto& sum) { pipelined(1, [&](Index i) { add_row(x, i, sum); }); },
     0, 0},
    {"by_a_list",
     [](auto& x, auto& list, auto&, auto& sum) { pipelined(9, [&](Index i) { add_row(x, list(i), sum); }); },
     1, 0},
    {"branch",
     [](auto& x, auto& list, auto&, auto& sum) {
       pipelined(9, [&](Index i) { when(list(i) > 0, [&] { add_row(x, i, sum); }); });
     },
     1, 0},
    {"of_what_was_computed",
     [](auto& x, auto&, auto&, auto& sum) {
       pipelined(9, [&](Index) { add_row(x, i32(reduce_sum(sum).scalar()), sum); });
     },
     0, 1},
    {"of_what_is_written_behind",
     [](auto&, auto&, auto& out, auto& sum) { pipelined(9, [&](Index i) { add_row(out, i, sum); }); }, 1, 0},
    {"of_what_was_written",
     [](auto&, auto&, auto& out, auto& sum) {
       parallel(sum, [&](Index i) { out(1, i) = sum(i); });
       pipelined(9, [&](Index i) { add_row(out, i, sum); });
     },
     0, 1},
    {"of_what_another_step_writes",
     [](auto&, auto&, auto& out, auto& sum) {
       pipelined(9, [&](Index i) {
         add_row(out, i, sum);
         parallel(sum, [&](Index j) { out(i + 1, j) = sum(j); });
       });
     },
     0, 1},
    {"of_what_its_step_writes",
     [](auto&, auto&, auto& out, auto& sum) {
       pipelined(9, [&](Index i) {
         add_row(out, i, sum);
         parallel(sum, [&](Index j) { out(i, j) = sum(j); });
       });
     },
     1, 0},
    {"changed_in_place",
     [](auto& x, auto&, auto&, auto& sum) {
       pipelined(9, [&](Index i) {
         Shared tile({1, 64}, f32);
         copy(x.at(i, 0), tile);
         parallel(1, 64, [&](Index r, Index j) { tile(r, j) = tile(r, j) * 2; });
         parallel(sum, [&](Index j) { sum(j) = sum(j) + tile(0, 63 - j); });
       });
     },
     0, 1},
    {"beside_one_that_is_made",
     [](auto& x, auto&, auto&, auto& sum) {
       pipelined(9, [&](Index i) {
         Shared tile({1, 64}, f32), twice({1, 64}, f32);
         copy(x.at(i, 0), tile);
         parallel(1, 64, [&](Index r, Index j) { twice(r, j) = tile(r, j) * 2; });
         parallel(sum, [&](Index j) { sum(j) = sum(j) + twice(0, 63 - j); });
       });
     },
     1, 0},
    {"there_and_back",
     [](auto& x, auto&, auto&, auto& sum) {
       const auto add = [&](const Expr& i) { add_row(x, i, sum); };
       there_and_back(add, add);
     },
     2, 0, 1},
    {"there_and_there",
     [](auto& x, auto&, auto&, auto& sum) {
       for (int turn = 0; turn < 2; ++turn) pipelined(9, [&](Index i) { add_row(x, i, sum); });
     },
     2, 0},
    {"back_over_other_rows",
     [](auto& x, auto&, auto&, auto& sum) {
       there_and_back([&](const Expr& i) { add_row(x, i, sum); },
                      [&](const Expr& i) { add_row(x, i + 1, sum); });
     },
     2, 0},
    {"back_after_a_loop_left_early",
     [](auto& x, auto& list, auto&, auto& sum) {
       there_and_back(
           [&](const Expr& i) {
             add_row(x, i, sum);
             break_if(list(i) > 0);
           },
           [&](const Expr& i) { add_row(x, i, sum); });
     },
     2, 0},
    {"back_over_what_was_written",
     [](auto&, auto&, auto& out, auto& sum) {
       const auto add = [&](const Expr& i) { add_row(out, i, sum); };
       pipelined(9, [&](Index i) { add(i); });
       parallel(sum, [&](Index j) { out(1, j) = sum(j); });
       pipelined(9, [&](Index i) { add(8 - i); });
     },
     1, 1},
    {"in_groups",
     [](auto& x, auto&, auto& out, auto&) {
       each_group(2, Group::warp, [&](Index g) {
         Fragment own({64}, f32, 0);
         pipelined(9, [&](Index i) { add_row(x, i, own); });
         parallel(own, [&](Index i) { out(g, i) = own(i); });
       });
     },
     0, 0},
};

INSTANTIATE_TEST_SUITE_P(Table, CopyRingLoops, ::testing::ValuesIn(rings_cases),
                         [](const auto& info) { return std::string(info.param.name); });

// Two tiles of 48 KB in two slots fill shared memory; of 16 KB a step's fragment has slots beside them.
Kernel tiles_beside_a_fragment(int columns) {
  return kernel("beside", [&] {
    Dim M("M");
    Tensor x = input("x", {M, columns}, f32), y = input("y", {M, columns}, f32),
           z = input("z", {M, columns}, f32), out = output("out", {M, columns}, f32);
    grid(1, {.threads = 512}, [&](Index) {
      pipelined(M, {.stages = 2}, [&](Index i) {
        Shared a({columns}, f32), b({columns}, f32);
        copy(x.slice(i).at(0), a);
        copy(y.slice(i).at(0), b);
        Fragment own = load(z.slice(i).at(0), {columns}, f32);
        parallel(own, [&](Index j) { own(j) += a(j) * b(columns - 1 - j); });
        copy(own, out.slice(i).at(0));
      });
    });
  });
}

TEST(CopyRings, LeaveFragmentsBehindTilesOfTheProgram) {
  for (const auto& [columns, tiles] : {std::pair{4096, 3}, {12288, 2}}) {
    const testing::Lowered lowered(tiles_beside_a_fragment(columns), hopper);
    const auto& loops = lowered.plan.grids[0].copy_rings.loops;
    ASSERT_EQ(loops.size(), 1U) << columns;
    EXPECT_EQ(loops.begin()->second.tiles.size(), static_cast<std::size_t>(tiles)) << columns;
  }
}

}  // namespace copy_rings_test
}  // namespace tegula::passes

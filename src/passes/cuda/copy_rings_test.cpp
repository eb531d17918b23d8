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

}  // namespace copy_rings_test
}  // namespace tegula::passes

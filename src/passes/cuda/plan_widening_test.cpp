// Which tiles of 8-bit floats a producer's warps widen, and that the schedules in which they do are clean.
#include "passes/cuda/plan_widening.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "passes/cuda/testing/plans.hpp"
#include "passes/cuda/testing/widened_program.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::passes {
namespace plan_widening_test {

using testing::WidenedCase;

class WidenedTiles : public ::testing::TestWithParam<WidenedCase> {};

TEST_P(WidenedTiles, ComeAsBytes) {
  const WidenedCase& c = GetParam();
  CudaTarget target;
  target.copy_engine = c.engine;
  const testing::Lowered lowered(testing::widened_program(c), target);
  const auto roles = lowered.roles();
  ASSERT_TRUE(roles);
  EXPECT_EQ(roles->transpositions.size(), c.tiles);
  EXPECT_EQ(roles->transposer.empty(), c.tiles == 0);
  const auto count = [&](auto of) { return std::count_if(roles->rings.begin(), roles->rings.end(), of); };
  EXPECT_EQ(count([](const RingPlan& r) { return r.to_transpose; }), static_cast<std::ptrdiff_t>(c.tiles));
  EXPECT_EQ(count([](const RingPlan& r) { return r.by_transposer; }), c.factors && c.tiles > 0 ? 1 : 0);
  const bool by_rows = c.brought == testing::Brought::by_rows || c.brought == testing::Brought::or_none;
  if (c.tiles > 0) { EXPECT_EQ(roles->one_loader, !by_rows); }
  const auto found = schedule::verify(*lowered.plan.grids[0].schedule, schedule::thorough);
  EXPECT_FALSE(found) << found->message;
}

TEST_P(WidenedTiles, HaveSchedulesThatAreNotToBeChanged) {
  const WidenedCase& c = GetParam();
  if (c.tiles == 0) return;
  const testing::Lowered lowered(testing::widened_program(c));
  const schedule::Schedule& s = *lowered.plan.grids[0].schedule;
  std::vector<std::string> accepted;
  for (const schedule::Mutation& m : schedule::mutations(s))
    if (m.name.rfind("transposer", 0) == 0 && !schedule::verify(m.schedule)) accepted.push_back(m.name);
  EXPECT_EQ(accepted, std::vector<std::string>{}) << schedule::print(s);
}

INSTANTIATE_TEST_SUITE_P(Table, WidenedTiles, ::testing::ValuesIn(testing::all_widened),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace plan_widening_test
}  // namespace tegula::passes

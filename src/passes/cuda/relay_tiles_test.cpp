// Which tiles pass on what a step makes, and that every wait, fence and arrival of theirs is needed.
#include "passes/cuda/relay_tiles.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "passes/cuda/testing/plans.hpp"
#include "passes/cuda/testing/relayed_program.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::passes {
namespace relay_tiles_test {

using testing::RelayCase;

class RelayedTiles : public ::testing::TestWithParam<RelayCase> {};

TEST_P(RelayedTiles, AreFound) {
  const testing::Lowered lowered(testing::relay_program(GetParam()));
  const Roles& roles = *lowered.plan.grids[0].roles;
  EXPECT_EQ(
      std::count_if(roles.rings.begin(), roles.rings.end(), [](const RingPlan& r) { return r.relayed; }),
      GetParam().rings);
}

// Of the ring: in front of what reads, or writes, and behind both.
bool is_of_relay(const std::string& name) {
  return name.find("proxy fence") != std::string::npos || name.find("full carried") != std::string::npos ||
         name.find("advance carried") != std::string::npos;
}

TEST_P(RelayedTiles, AreNotToBeChanged) {
  if (GetParam().rings == 0) return;
  const testing::Lowered lowered(testing::relay_program(GetParam()));
  const schedule::Schedule& s = *lowered.plan.grids[0].schedule;
  const auto found = schedule::verify(s, schedule::thorough);
  EXPECT_FALSE(found) << found->message << "\n" << schedule::print(s);
  std::vector<std::string> accepted;
  int tried = 0;
  for (const auto& all : {schedule::mutations(s), schedule::moves(s)})
    for (const schedule::Mutation& m : all) {
      if (!is_of_relay(m.name)) continue;
      ++tried;
      if (!schedule::verify(m.schedule)) accepted.push_back(m.name);
    }
  EXPECT_GE(tried, 10);
  // What a block before left in that slot was read behind the wait for the slot after it, or not at all. A
  // block that is sure to read the tile has awaited that slot itself.
  const std::string wait = "consumer 2: wait full carried[n-1], ";
  std::vector<std::string> harmless;
  if (is_always_read(GetParam())) harmless = {wait + "removed", wait + "one slot earlier"};
  if (GetParam().around != testing::Around::refilled)
    harmless.push_back(wait + "behind fill: writes carried[carried]");
  EXPECT_EQ(accepted, harmless) << schedule::print(s);
}

INSTANTIATE_TEST_SUITE_P(Programs, RelayedTiles, ::testing::ValuesIn(testing::relays),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace relay_tiles_test
}  // namespace tegula::passes

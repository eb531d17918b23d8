// Layouts in which lanes share the elements of sums, against what the exchanges leave in each register.
#include "layout/lane_shares.hpp"

#include <gtest/gtest.h>

#include "layout/fragments.hpp"

namespace tegula::layout {
namespace lane_shares_test {

// The registers of a thread before the exchanges that are in its registers after them.
std::vector<std::int64_t> kept(const LaneShares& shares, std::int64_t thread, std::int64_t count) {
  std::vector<std::int64_t> own;
  for (std::int64_t r = 0; r < count; ++r) own.push_back(r);
  for (const Halving& step : shares.steps) {
    const std::int64_t second = thread / step.lanes % 2;
    std::vector<std::int64_t> half;
    for (std::size_t r = 0; r < own.size(); ++r)
      if (static_cast<std::int64_t>(r) / step.registers % 2 == second) half.push_back(own[r]);
    own = half;
  }
  return own;
}

void expect_shared(const Layout& sums, int along, std::int64_t lanes) {
  const auto shares = share_among_lanes(sums, along);
  ASSERT_TRUE(shares.has_value()) << sums.text();
  EXPECT_TRUE(shares->layout.is_valid()) << shares->layout.text();
  EXPECT_EQ(shares->layout.register_count() * lanes, sums.register_count());
  for (std::int64_t t = 0; t < sums.thread_count(); ++t) {
    const auto own = kept(*shares, t, sums.register_count());
    ASSERT_EQ(static_cast<std::int64_t>(own.size()), shares->layout.register_count());
    for (std::size_t r = 0; r < own.size(); ++r)
      EXPECT_EQ(shares->layout.coordinates(t, static_cast<std::int64_t>(r)), sums.coordinates(t, own[r]))
          << "thread " << t << ", register " << r;
  }
}

TEST(LaneShares, OfRowsOfProducts) {
  expect_shared(wgmma_accumulator(128, 64, {1, 1}).slice(1), 0, 4);  // the two rows of a lane and both tiles
  expect_shared(wgmma_accumulator(256, 64, {2, 1}).slice(1), 0, 4);
}

// Lanes have rows 0 … 3 of the first dimension for themselves, and registers those of the second.
TEST(LaneShares, LeaveRowsOfMemoryToRegisters) {
  const Layout sums({4, 64}, {replica(2, 4), digit(2, 1, 8, 1)}, {digit(2, 1, 8, 8), digit(2, 0, 4, 1)});
  expect_shared(sums, 1, 4);
  EXPECT_EQ(share_among_lanes(sums, 1)->layout,
            Layout({4, 64}, {digit(2, 0, 4, 1), digit(2, 1, 8, 1)}, {digit(2, 1, 8, 8)}));
  expect_shared(sums, 0, 4);
  EXPECT_EQ(share_among_lanes(sums, 0)->layout.register_count(), 8);
}

TEST(LaneShares, AreNoneWhereLanesOrElementsLack) {
  const Layout alone({32}, {digit(1, 0, 32, 1)}, {}), one({8}, {replica(1, 4), digit(1, 0, 8, 1)}, {}),
      three({24}, {replica(1, 4), digit(1, 0, 8, 1)}, {digit(1, 0, 3, 8)}),
      among_warps({8}, {digit(1, 0, 32, 1), replica(1, 4)}, {digit(1, 0, 4, 32)}),
      overhanging({30}, {replica(1, 2), digit(1, 0, 16, 1)}, {digit(1, 0, 2, 16)});
  for (const Layout& sums : {alone, one, three, among_warps, overhanging})
    EXPECT_FALSE(share_among_lanes(sums, 0).has_value()) << sums.text();
}

}  // namespace lane_shares_test
}  // namespace tegula::layout

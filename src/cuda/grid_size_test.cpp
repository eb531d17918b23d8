// How many CTAs run the blocks of a grid.
#include "device/bundle/grid_size.hpp"

#include <gtest/gtest.h>

namespace bundle {
namespace {

TEST(CtasOfGrid, LeaveOutThoseThatIdleInTheLastRound) {
  EXPECT_EQ(ctas_of_grid(100, 132, true), 100);
  EXPECT_EQ(ctas_of_grid(512, 132, true), 128);
  EXPECT_EQ(ctas_of_grid(1024, 132, true), 128);
  EXPECT_EQ(ctas_of_grid(528, 132, true), 132);
  EXPECT_EQ(ctas_of_grid(512, 66, true), 64);  // pairs
}

TEST(CtasOfGrid, AreAllWhereManyWouldIdleOrBlocksDiffer) {
  EXPECT_EQ(ctas_of_grid(512, 132, false), 132);
  EXPECT_EQ(ctas_of_grid(133, 132, true), 132);
  EXPECT_EQ(ctas_of_grid(200, 132, true), 132);
}

}  // namespace
}  // namespace bundle

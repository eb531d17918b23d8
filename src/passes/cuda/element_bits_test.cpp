// Which layouts count bits of the numbers of elements.
#include "passes/cuda/element_bits.hpp"

#include <gtest/gtest.h>

namespace tegula::passes {
namespace element_bits_test {

using layout::digit, layout::Layout;

TEST(ElementBits, AreThoseOfPowersOfTwoAndOneOddFactor) {
  const auto plain = bits_of(Layout{{16, 8}, {digit(2, 1, 8, 1), digit(2, 0, 4, 1)}, {digit(2, 0, 4, 4)}});
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->threads, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(plain->registers, (std::vector<int>{5, 6}));
  const auto odd = bits_of(Layout{{12, 8}, {digit(2, 1, 8, 1), digit(2, 0, 3, 4)}, {digit(2, 0, 4, 1)}});
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->threads, (std::vector<int>{0, 1, 2, 5}));
  const auto row = bits_of(Layout{{1, 80}, {digit(2, 1, 2, 8), digit(2, 1, 5, 16)}, {digit(2, 1, 8, 1)}});
  ASSERT_TRUE(row);
  EXPECT_EQ(row->threads, (std::vector<int>{3, 4}));
  EXPECT_FALSE(bits_of(Layout{{2, 80}, {digit(2, 1, 2, 8), digit(2, 1, 5, 16)}, {digit(2, 1, 8, 1)}}));
}

// The odd digit of registers follows their bits; the slowest digit of an element's number has to be that of
// its registers, too.
TEST(ElementBits, OfRegistersHaveTheOddDigitLast) {
  const auto rounds = bits_of(Layout{{1, 96}, {digit(2, 1, 4, 8)}, {digit(2, 1, 8, 1), digit(2, 1, 3, 32)}});
  ASSERT_TRUE(rounds);
  EXPECT_EQ(rounds->threads, (std::vector<int>{3, 4}));
  EXPECT_EQ(rounds->registers, (std::vector<int>{0, 1, 2, 5}));
  EXPECT_FALSE(bits_of(Layout{{1, 96}, {digit(2, 1, 4, 8)}, {digit(2, 1, 3, 32), digit(2, 1, 8, 1)}}));
  EXPECT_FALSE(bits_of(Layout{{1, 96}, {digit(2, 1, 4, 24)}, {digit(2, 1, 8, 1), digit(2, 1, 3, 8)}}));
}

// 16 threads for 10 rows: the last six of them hold nothing, and their numbers are no bits of rows.
TEST(ElementBits, AreNotThoseOfThreadsThatHoldNothing) {
  EXPECT_FALSE(bits_of(Layout{{10, 8}, {digit(2, 1, 8, 1), digit(2, 0, 16, 1)}, {}}));
  EXPECT_FALSE(bits_of(Layout{{12, 8}, {digit(2, 1, 8, 1), digit(2, 0, 16, 1)}, {}}));
  EXPECT_FALSE(bits_of(Layout{{8, 8}, {digit(2, 0, 8, 1)}, {digit(2, 1, 16, 1)}}));
}

}  // namespace element_bits_test
}  // namespace tegula::passes

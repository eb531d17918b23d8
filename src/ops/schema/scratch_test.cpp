// Memory between the grids of a call.
#include "ops/schema/scratch.hpp"

#include <gtest/gtest.h>

namespace tegula::ops {
namespace scratch_test {

constexpr std::int64_t large = 1 << 20;

Tensor of(std::int64_t elements) { return scratch({elements}, f32, Device::cpu()); }

TEST(Scratch, OfEarlierCallsIsUsedAgain) {
  const void* first = nullptr;
  {
    const Tensor own = of(large), other = of(large);
    EXPECT_NE(own.data(), other.data());
    first = other.data();
  }
  const Tensor again = of(large), another = of(large), third = of(large);
  EXPECT_TRUE(again.data() == first || another.data() == first);
  EXPECT_NE(third.data(), again.data());
  EXPECT_NE(third.data(), another.data());
}

// It may be twice as large as what is asked for, but not more.
TEST(Scratch, FitsWhatIsAskedFor) {
  const void* kept = nullptr;
  {
    const Tensor own = of(7 * large);
    kept = own.data();
  }
  const Tensor small = of(2 * large);
  EXPECT_NE(small.data(), kept);
  const Tensor half = of(4 * large);
  EXPECT_EQ(half.data(), kept);
  EXPECT_EQ(half.shape(), (Shape{4 * large}));
}

}  // namespace scratch_test
}  // namespace tegula::ops

// Which groups of channels are convolved without products.
#include <gtest/gtest.h>

#include "ops/convolution/plan.hpp"

namespace tegula::ops {
namespace {

ConvShape of_groups(std::int64_t channels, std::int64_t features, std::int64_t groups) {
  ConvShape s{.batch = 2, .channels = channels, .features = features, .groups = groups};
  s.in = s.out = {1, 56, 56}, s.taps = {1, 3, 3}, s.padding = {0, 1, 1};
  return s;
}
std::optional<ConvChannelsKernel> planned_channels(const ConvShape& s, ConvPass pass = ConvPass::forward) {
  return plan_channels(s, bf16, pass, s.out, true);
}

TEST(ConvChannelsPlan, TilesHaveWholeGroups) {
  for (const int own : {1, 2, 3, 5, 8})
    for (const int made : {1, 2, 3, 5, 8, 12, 64, 96}) {
      const auto t = planned_channels(of_groups(24L * own, 24L * made, 24));
      ASSERT_TRUE(t) << own << " to " << made;
      EXPECT_TRUE(t->n % made == 0 || made % t->n == 0) << own << " to " << made << ": " << t->n;
      EXPECT_LE(t->n, 64);
      EXPECT_EQ(t->read(), t->n >= made ? t->n / made * own : own);
    }
}

TEST(ConvChannelsPlan, ProductsKeepGroupsThatFillThem) {
  EXPECT_FALSE(planned_channels(of_groups(128, 128, 1)));
  EXPECT_FALSE(planned_channels(of_groups(128, 128, 8)));
  EXPECT_TRUE(planned_channels(of_groups(128, 128, 16)));
  // A gradient sums over features.
  EXPECT_TRUE(planned_channels(of_groups(128, 1024, 128), ConvPass::input_gradient));
  EXPECT_FALSE(planned_channels(of_groups(128, 2048, 128), ConvPass::input_gradient));
  ConvShape strided = of_groups(128, 1024, 128);
  strided.stride = 2;
  EXPECT_FALSE(planned_channels(strided, ConvPass::input_gradient));
}

TEST(ConvChannelsPlan, PixelsThatTapsSeeFitABlock) {
  ConvShape s = of_groups(128, 128, 128);
  s.taps = {1, 7, 7}, s.dilation = 64;
  EXPECT_FALSE(planned_channels(s));
}

}  // namespace
}  // namespace tegula::ops

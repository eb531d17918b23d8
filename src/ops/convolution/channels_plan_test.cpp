// Which groups of channels are convolved without products, and which are multiplied as one.
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

// Groups of so many channels and features.
ConvShape groups_of(std::int64_t own, std::int64_t made, std::int64_t groups) {
  return {.batch = 2, .channels = own * groups, .features = made * groups, .groups = groups};
}

using Counts = std::vector<int>;

TEST(MergedGroups, FillAStepAlongK) {
  EXPECT_EQ(merged_groups(groups_of(16, 16, 32), bf16, true), (Counts{1, 2, 4}));
  EXPECT_EQ(merged_groups(groups_of(32, 16, 4), bf16, true), (Counts{1, 2}));
  EXPECT_EQ(merged_groups(groups_of(1, 1, 128), bf16, true), (Counts{1, 8, 16, 32, 64}));
  EXPECT_EQ(merged_groups(groups_of(12, 12, 32), bf16, true), (Counts{1, 2, 4}));
  EXPECT_EQ(merged_groups(groups_of(64, 64, 4), bf16, true), Counts{1});
}

TEST(MergedGroups, BeginAtPieces) {
  EXPECT_EQ(merged_groups(groups_of(17, 17, 32), bf16, true), (Counts{1, 8}));
  EXPECT_EQ(merged_groups(groups_of(9, 9, 30), bf16, true), Counts{1}) << "no piece divides the channels";
  EXPECT_EQ(merged_groups(groups_of(16, 16, 32), f32, true), Counts{1}) << "multiplied without tensor cores";
}

// Also of f32: what counts is how many tiles are read.
TEST(MergedGroups, FillTheSmallestTileOfACpu) {
  EXPECT_EQ(merged_groups(groups_of(1, 1, 128), f32, false), (Counts{1, 4, 8, 16, 32}));
  EXPECT_EQ(merged_groups(groups_of(1, 1, 128), bf16, false), (Counts{1, 8, 16, 32}));
  EXPECT_EQ(merged_groups(groups_of(17, 17, 32), bf16, false), Counts{1});
}

TEST(MergedGroups, AreProductsUnlessOfSingleChannels) {
  EXPECT_TRUE(are_products(groups_of(4, 4, 32), bf16));
  EXPECT_TRUE(are_products(groups_of(1, 4, 32), bf16));
  EXPECT_FALSE(are_products(groups_of(1, 1, 128), bf16));
  EXPECT_FALSE(are_products(groups_of(4, 4, 32), f32));
}

}  // namespace
}  // namespace tegula::ops

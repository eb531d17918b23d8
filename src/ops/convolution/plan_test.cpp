// Tiles of convolutions on a CPU.
#include "ops/convolution/plan.hpp"

#include <gtest/gtest.h>

#include <set>

namespace tegula::ops {
namespace {

ConvShape images(std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t channels,
                 std::int64_t features) {
  ConvShape s{.batch = batch, .channels = channels, .features = features};
  s.in = s.out = {1, height, width}, s.taps = {1, 3, 3}, s.padding = {0, 1, 1};
  return s;
}
ConvKernel planned(const ConvShape& s, ConvPass pass = ConvPass::forward, bool windows = true,
                   int threads = 1) {
  ConvKernel kernel{.type = bf16, .compute = bf16, .out = bf16, .pass = pass, .windows = windows};
  plan_on_cpu(kernel, s, s.out, threads);
  return kernel;
}

TEST(ConvolutionPlan, UsualImagesAreCoveredWithoutARest) {
  for (const int extent : {7, 14, 28, 32, 56, 64, 112, 224}) {
    const ConvKernel t = planned(images(16, extent, extent, 128, 128));
    EXPECT_EQ(extent % t.h, 0) << extent << ": " << t.h;
    EXPECT_EQ(extent % t.w, 0) << extent << ": " << t.w;
  }
}

TEST(ConvolutionPlan, TilesFitTheirCall) {
  const ConvKernel narrow = planned(images(1, 100, 3, 16, 48));
  EXPECT_LE(narrow.w, 4);
  EXPECT_EQ(narrow.k, 32);
  EXPECT_GE(planned(images(64, 4, 4, 64, 64)).images, 2);
  const ConvKernel looked_up = planned(images(4, 33, 33, 96, 96), ConvPass::forward, false);
  EXPECT_EQ(looked_up.h, 1);
  EXPECT_EQ(96 % looked_up.n, 0);
}

// Each has tiles, and steps along channels are those of one thread, so that results are the same.
TEST(ConvolutionPlan, ThreadsShareTheTiles) {
  const auto count = [](const ConvShape& s, const ConvKernel& t) {
    const auto tiles = [](std::int64_t extent, int tile) { return (extent + tile - 1) / tile; };
    return s.batch * tiles(s.out[1], t.h) * tiles(s.out[2], t.w) * tiles(s.features, t.n);
  };
  const ConvShape s = images(2, 28, 28, 64, 128);
  const ConvKernel alone = planned(s);
  for (const int threads : {12, 16}) {
    const ConvKernel shared = planned(s, ConvPass::forward, true, threads);
    EXPECT_EQ(shared.k, alone.k);
    EXPECT_GE(count(s, shared), threads) << threads << " threads";
    const ConvKernel weights = planned(s, ConvPass::weight_gradient, true, threads);
    EXPECT_EQ(weights.pixels(), planned(s, ConvPass::weight_gradient).pixels()) << "sums go over pixels";
  }
}

// A kernel is compiled for each tile.
TEST(ConvolutionPlan, ImagesOfAllSizesShareFewTiles) {
  std::set<std::pair<int, int>> tiles;
  for (int height = 1; height <= 300; height += 7)
    for (int width = 1; width <= 300; width += 11) {
      const ConvKernel t = planned(images(2, height, width, 64, 64), ConvPass::input_gradient);
      tiles.emplace(t.h, t.w);
      EXPECT_LE(t.pixels(), 512);
    }
  EXPECT_LE(tiles.size(), 60U);
}

}  // namespace
}  // namespace tegula::ops

#include "image/picture.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/testing/expect_error.hpp"
#include "tegula/error.hpp"

namespace tegula::image {
namespace {

TEST(Picture, BytesAndBack) {
  const Tensor bytes = Tensor::arange(256, u8).reshape({16, 16, 1});
  EXPECT_TRUE(equal(to_bytes(to_picture(bytes)), bytes));
}

TEST(Picture, BytesAreRoundedAndClamped) {
  const Tensor picture = Tensor::from<float>({-0.5f, 0.499f / 255, 0.501f / 255, 1.7f}, {1, 4, 1});
  EXPECT_EQ(to_bytes(picture).values<std::uint8_t>(), (std::vector<std::uint8_t>{0, 0, 1, 255}));
}

TEST(Picture, ReducesByMeans) {
  const Tensor picture = Tensor::from<float>({0, 2, 4, 6, 8, 10, 12, 14}, {2, 4, 1});
  EXPECT_EQ(reduce(picture, 2).values<float>(), (std::vector<float>{5, 9}));
  EXPECT_EQ(reduce(picture, 4).values<float>(), picture.values<float>());
}

// Where the sides do not divide, a pixel takes its share of what it covers.
TEST(Picture, ReducesByFractions) {
  const Tensor picture = Tensor::from<float>({3, 6, 9}, {3, 1, 1});
  const std::vector<float> values = reduce(picture, 2).values<float>();
  ASSERT_EQ(values.size(), 2u);
  EXPECT_NEAR(values[0], (3 + 6 * 0.5) / 1.5, 1e-6);
  EXPECT_NEAR(values[1], (6 * 0.5 + 9) / 1.5, 1e-6);
}

TEST(Picture, ReducingKeepsTheMean) {
  const Tensor picture = Tensor::random_uniform({40, 60, 3}, f32, 3), small = reduce(picture, 12);
  ASSERT_EQ(small.shape(), (Shape{8, 12, 3}));
  auto mean = [](const Tensor& of) {
    double sum = 0;
    for (double value : of.values<double>()) sum += value;
    return sum / static_cast<double>(of.nelements());
  };
  EXPECT_NEAR(mean(small), mean(picture), 1e-6);
}

TEST(Picture, NoiseHasItsDeviationAndSeed) {
  const Tensor picture = Tensor::full({100, 100, 3}, f32, 0.5);
  const Tensor noisy = add_noise(picture, 0.1, 1);
  // Only clamping removes noise, and 0.5 keeps all of it: 10 log10(1 / 0.1²).
  EXPECT_NEAR(psnr(noisy, picture), 20, 0.1);
  EXPECT_TRUE(equal(noisy, add_noise(picture, 0.1, 1)));
  EXPECT_FALSE(equal(noisy, add_noise(picture, 0.1, 2)));
}

TEST(Picture, Psnr) {
  const Tensor black = Tensor::zeros({2, 2, 1}, f32);
  EXPECT_EQ(psnr(black, black), HUGE_VAL);
  EXPECT_NEAR(psnr(Tensor::full({2, 2, 1}, f32, 0.1), black), 20, 1e-5);
  EXPECT_NEAR(psnr(Tensor::full({2, 2, 1}, f32, 7), black), 0, 1e-9);
  EXPECT_ERROR(ArgumentError, "[2, 2, 1]", psnr(black, Tensor::zeros({2, 3, 1}, f32)));
}

TEST(Picture, SideBySide) {
  const Tensor gray = Tensor::full({2, 1, 1}, f32, 0.25),
               red = Tensor::from<float>({1, 0, 0, 1, 0, 0}, {2, 1, 3});
  const Tensor row = side_by_side({gray, red}, 1);
  ASSERT_EQ(row.shape(), (Shape{2, 3, 3}));
  EXPECT_EQ(row.slice(0, 0, 1).values<float>(), (std::vector<float>{0.25, 0.25, 0.25, 1, 1, 1, 1, 0, 0}));
}

}  // namespace
}  // namespace tegula::image

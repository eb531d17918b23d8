// Non-local means by attention against the double loop over pixels that defines it.
#include "image/non_local_means.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "image/picture.hpp"
#include "ops/testing/operators.hpp"
#include "runtime/testing/expect_error.hpp"
#include "tegula/ops.hpp"

namespace tegula::image {
namespace {

constexpr double sigma = 0.1;

Tensor noise(const Shape& shape) { return Tensor::random_uniform(shape, f32, 5); }

// A pixel by its coordinates, mirrored at the border.
float pixel(const Tensor& picture, std::int64_t y, std::int64_t x, std::int64_t c) {
  auto inside = [](std::int64_t at, std::int64_t extent) {
    return at < 0 ? -1 - at : at >= extent ? 2 * extent - 1 - at : at;
  };
  return picture.at<float>(inside(y, picture.size(0)), inside(x, picture.size(1)), c);
}

double distance(const Tensor& picture, std::int64_t y, std::int64_t x, std::int64_t v, std::int64_t u) {
  double sum = 0;
  for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx)
      for (std::int64_t c = 0; c < picture.size(2); ++c)
        sum += std::pow(pixel(picture, y + dy, x + dx, c) - pixel(picture, v + dy, u + dx, c), 2);
  return sum;
}

// Every pixel the mean of all, weighted by the distance of patches, in double precision.
Tensor plain(const Tensor& picture) {
  const std::int64_t height = picture.size(0), width = picture.size(1), channels = picture.size(2);
  const double h = 0.8 * sigma * std::sqrt(9.0 * static_cast<double>(channels));
  Tensor result = Tensor::zeros(picture.shape(), f64);
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      double total = 0;
      std::vector<double> sum(static_cast<std::size_t>(channels));
      for (std::int64_t v = 0; v < height; ++v)
        for (std::int64_t u = 0; u < width; ++u) {
          const double weight = std::exp(-distance(picture, y, x, v, u) / (h * h));
          total += weight;
          for (std::int64_t c = 0; c < channels; ++c)
            sum[static_cast<std::size_t>(c)] += weight * picture.at<float>(v, u, c);
        }
      for (std::int64_t c = 0; c < channels; ++c)
        result.set({y, x, c}, sum[static_cast<std::size_t>(c)] / total);
    }
  return result;
}

Tensor without_heads(const Tensor& out) { return out.reshape({out.size(1), out.size(3)}); }

TEST(NonLocalMeans, DenseAttentionIsTheFormula) {
  for (const Shape& shape : {Shape{16, 24, 3}, {24, 16, 1}}) {
    const Tensor picture = noise(shape), expected = plain(picture);
    const NonLocalMeans means = non_local_means(picture, sigma);
    for (Target target : ops::test_targets()) {
      const auto result = ops::attention(means.q, means.k, means.v, {.scale = means.scale, .target = target});
      const Tensor out = from_tokens(without_heads(result.out), shape[0], shape[1]);
      EXPECT_LT(max_abs_difference(out, expected), 1e-5) << describe(shape) << target.name();
    }
  }
}

TEST(NonLocalMeans, AllBlocksAreDense) {
  const Tensor picture = noise({24, 24, 3});
  const NonLocalMeans means = non_local_means(picture, sigma);
  const std::int64_t blocks = means.k.size(1) / block;
  const Tensor all = Tensor::arange(blocks, i32).reshape({1, 1, 1, blocks}).expand({1, 1, blocks, blocks});
  ops::BlockSparseOptions options;
  options.q_block_size = options.k_block_size = static_cast<int>(block);
  options.scale = means.scale;
  const Tensor indices = all.contiguous();
  options.indices = indices.ref();
  const auto sparse = ops::block_sparse_attention(means.q, means.k, means.v, options);
  const Tensor out = from_tokens(without_heads(sparse.out), 24, 24);
  EXPECT_LT(max_abs_difference(out, plain(picture)), 1e-5);
}

TEST(NonLocalMeans, TokensAreInTheOrderOfTiles) {
  const std::int64_t height = 16, width = 24;
  const Tensor numbers = Tensor::arange(height * width, f32).reshape({height, width, 1});
  const Tensor tokens = to_tokens(numbers);
  ASSERT_EQ(tokens.shape(), (Shape{height * width, 1}));
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t of_block = (y / tile) * (width / tile) + x / tile;
      const std::int64_t token = of_block * block + y % tile * tile + x % tile;
      EXPECT_EQ(tokens.at<float>(token, 0), static_cast<float>(y * width + x));
    }
}

TEST(NonLocalMeans, TokensComeBackAtEverySize) {
  for (std::int64_t height : {8, 9, 15, 16})
    for (std::int64_t width : {8, 13, 24}) {
      const Tensor picture = noise({height, width, 3});
      const Tensor tokens = to_tokens(picture);
      EXPECT_EQ(tokens.size(0) % block, 0);
      EXPECT_TRUE(equal(from_tokens(tokens, height, width), picture)) << height << " x " << width;
    }
}

// The features of a token: twice the patch around its pixel and 1; the patch and its negative square.
TEST(NonLocalMeans, FeaturesAreThePatch) {
  const Tensor picture = noise({16, 16, 3});
  const NonLocalMeans means = non_local_means(picture, sigma);
  ASSERT_EQ(means.q.shape(), (Shape{1, 256, 1, 28}));
  for (std::int64_t token : {0, 7, 63, 64, 191, 255}) {
    const std::int64_t tile_at = token / block, inside = token % block;
    const std::int64_t y = tile_at / 2 * tile + inside / tile, x = tile_at % 2 * tile + inside % tile;
    double squares = 0;
    for (std::int64_t i = 0; i < 27; ++i) {
      const float value = pixel(picture, y + i / 9 - 1, x + i / 3 % 3 - 1, i % 3) - 0.5f;
      EXPECT_FLOAT_EQ(means.k.at<float>(0, token, 0, i), value);
      EXPECT_FLOAT_EQ(means.q.at<float>(0, token, 0, i), 2 * value);
      squares += value * value;
    }
    EXPECT_EQ(means.q.at<float>(0, token, 0, 27), 1);
    EXPECT_NEAR(means.k.at<float>(0, token, 0, 27), -squares, 1e-5);
  }
}

// scores(i, j) = scale · (2 (m·m' + s s') − |m'|² − s'²), so that a block agrees most with itself: less
// (|m|² + s²), the score is −(|m − m'|² + (s − s')²).
TEST(NonLocalMeans, SelectionPrefersBlocksThatAreAlike) {
  const NonLocalMeans means = non_local_means(noise({40, 32, 3}), sigma);
  ops::BlockScores options;
  options.q_block_size = options.k_block_size = static_cast<int>(block);
  options.scale = means.scale;
  const Tensor scores = ops::block_scores(means.selection_q, means.selection_k, options);
  const Tensor best = ops::topk_blocks(scores, 1);
  ASSERT_EQ(best.shape(), (Shape{1, 1, 20, 1}));
  for (std::int64_t i = 0; i < 20; ++i) EXPECT_EQ(best.get({0, 0, i, 0}), static_cast<double>(i));
}

TEST(NonLocalMeans, RefusesWhatIsNoPicture) {
  EXPECT_ERROR(ArgumentError, "at least 8 x 8", non_local_means(Tensor::zeros({7, 8, 3}, f32), sigma));
  EXPECT_ERROR(ArgumentError, "[16, 16]", non_local_means(Tensor::zeros({16, 16}, f32), sigma));
}

}  // namespace
}  // namespace tegula::image

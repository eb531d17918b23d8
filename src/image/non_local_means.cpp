#include "image/non_local_means.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tegula/error.hpp"

namespace tegula::image {

namespace {

constexpr int radius = 1;
constexpr std::int64_t row_alignment = 16;  // floats of a line of the cache

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

// The pixel that stands for one outside [0, extent): its mirror image at the border.
std::int64_t mirrored(std::int64_t at, std::int64_t extent) {
  if (at < 0) at = -at - 1;
  return at < extent ? at : std::max<std::int64_t>(0, 2 * extent - 1 - at);
}

Tensor extended(const Tensor& picture) {
  const std::int64_t height = picture.size(0), width = picture.size(1), channels = picture.size(2);
  Tensor result = Tensor::empty({round_up(height, tile), round_up(width, tile), channels}, f32);
  const Tensor from = picture.contiguous();
  float* out = result.data_as<float>();
  for (std::int64_t y = 0; y < result.size(0); ++y)
    for (std::int64_t x = 0; x < result.size(1); ++x) {
      const std::int64_t pixel = mirrored(y, height) * width + mirrored(x, width);
      out = std::copy_n(from.data_as<float>() + pixel * channels, channels, out);
    }
  return result;
}

// [height, width, n] of whole tiles to [tokens, n] and back.
Tensor tiled(const Tensor& picture) {
  const std::int64_t rows = picture.size(0) / tile, columns = picture.size(1) / tile, n = picture.size(2);
  return picture.reshape({rows, tile, columns, tile, n})
      .permute({0, 2, 1, 3, 4})
      .contiguous()
      .reshape({rows * columns * block, n});
}

// The patch around every pixel, less 1/2: [height, width, 9 · channels].
Tensor patches(const Tensor& picture) {
  const std::int64_t height = picture.size(0), width = picture.size(1), channels = picture.size(2);
  constexpr std::int64_t side = 2 * radius + 1;
  Tensor result = Tensor::empty({height, width, side * side * channels}, f32);
  const float* from = picture.data_as<float>();
  float* out = result.data_as<float>();
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      for (std::int64_t dy = -radius; dy <= radius; ++dy)
        for (std::int64_t dx = -radius; dx <= radius; ++dx) {
          const std::int64_t pixel = mirrored(y + dy, height) * width + mirrored(x + dx, width);
          for (std::int64_t c = 0; c < channels; ++c) *out++ = from[pixel * channels + c] - 0.5f;
        }
  return result;
}

// √(mean |p|² − |mean p|²) over the tokens of a block.
float spread(const float* patch, std::int64_t size) {
  std::vector<double> sum(static_cast<std::size_t>(size));
  double squares = 0;
  for (std::int64_t t = 0; t < block; ++t)
    for (std::int64_t i = 0; i < size; ++i, ++patch) {
      sum[static_cast<std::size_t>(i)] += *patch;
      squares += static_cast<double>(*patch) * *patch;
    }
  double of_mean = 0;
  for (double value : sum) of_mean += value * value;
  constexpr double count = block;
  return static_cast<float>(std::sqrt(std::max(0.0, squares / count - of_mean / (count * count))));
}

// Columns [2p, 1, 2s] and [p, −|p|², s].
void write_features(const Tensor& patch, const Tensor& q, const Tensor& k) {
  const std::int64_t size = patch.size(1), stride = q.size(1);
  const float* from = patch.data_as<float>();
  float *to_q = q.data_as<float>(), *to_k = k.data_as<float>();
  float s = 0;
  for (std::int64_t token = 0; token < patch.size(0); ++token, from += size, to_q += stride, to_k += stride) {
    if (token % block == 0) s = spread(from, size);
    float squares = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      to_q[i] = 2 * from[i];
      to_k[i] = from[i];
      squares += from[i] * from[i];
    }
    to_q[size] = 1, to_k[size] = -squares;
    to_q[size + 1] = 2 * s, to_k[size + 1] = s;
  }
}

Tensor as_heads(const Tensor& tokens, std::int64_t features) {
  return tokens.slice(1, 0, features).reshape({1, tokens.size(0), 1, features});
}

}  // namespace

Tensor to_tokens(const Tensor& picture) { return tiled(extended(picture)); }

Tensor from_tokens(const Tensor& tokens, std::int64_t height, std::int64_t width) {
  const std::int64_t rows = round_up(height, tile) / tile, columns = round_up(width, tile) / tile;
  const std::int64_t channels = tokens.size(1);
  return tokens.reshape({rows, columns, tile, tile, channels})
      .permute({0, 2, 1, 3, 4})
      .contiguous()
      .reshape({rows * tile, columns * tile, channels})
      .slice(0, 0, height)
      .slice(1, 0, width)
      .contiguous();
}

NonLocalMeans non_local_means(const Tensor& noisy, double sigma) {
  if (noisy.rank() != 3 || noisy.size(0) < tile || noisy.size(1) < tile) {
    throw ArgumentError(fmt::format(
        "non_local_means: expected a picture [height, width, channels] of at least {} x {} pixels, given {}",
        tile, tile, describe(noisy.shape())));
  }
  const Tensor picture = extended(noisy), patch = tiled(patches(picture));
  const std::int64_t size = patch.size(1), stride = round_up(size + 2, row_alignment);
  const Tensor q = Tensor::empty({patch.size(0), stride}, f32), k = Tensor::empty(q.shape(), f32);
  write_features(patch, q, k);
  NonLocalMeans result;
  result.q = as_heads(q, size + 1), result.k = as_heads(k, size + 1);
  result.selection_q = as_heads(q, size + 2), result.selection_k = as_heads(k, size + 2);
  result.v = as_heads(tiled(picture), picture.size(2));
  const double h = 0.8 * sigma * std::sqrt(static_cast<double>(size));
  result.scale = static_cast<float>(1 / (h * h));
  return result;
}

}  // namespace tegula::image

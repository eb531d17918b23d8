#include "image/picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tegula/error.hpp"

namespace tegula::image {

namespace {

double clamped(float value) { return std::clamp(static_cast<double>(value), 0.0, 1.0); }

// One pixel of a reduced row: the pixels [first, first + weights.size()) with weights of sum 1.
struct Mean {
  std::int64_t first = 0;
  std::vector<float> weights;
};

std::vector<Mean> means(std::int64_t from, std::int64_t to) {
  const double step = static_cast<double>(from) / static_cast<double>(to);
  std::vector<Mean> result(static_cast<std::size_t>(to));
  for (std::int64_t i = 0; i < to; ++i) {
    const double begin = static_cast<double>(i) * step, end = static_cast<double>(i + 1) * step;
    Mean& mean = result[static_cast<std::size_t>(i)];
    mean.first = static_cast<std::int64_t>(begin);
    for (std::int64_t j = mean.first; j < from && static_cast<double>(j) < end; ++j) {
      const double low = std::max(begin, static_cast<double>(j)), high = std::min(end, j + 1.0);
      mean.weights.push_back(static_cast<float>((high - low) / step));
    }
  }
  return result;
}

// Reduces dimension 0 of [extent, others].
Tensor reduce_rows(const Tensor& rows, std::int64_t to) {
  const std::int64_t others = rows.size(1);
  Tensor result = Tensor::zeros({to, others}, f32);
  const std::vector<Mean> table = means(rows.size(0), to);
  for (std::int64_t i = 0; i < to; ++i) {
    float* out = result.data_as<float>() + i * others;
    const Mean& mean = table[static_cast<std::size_t>(i)];
    for (std::size_t j = 0; j < mean.weights.size(); ++j) {
      const float* in = rows.data_as<float>() + (mean.first + static_cast<std::int64_t>(j)) * others;
      for (std::int64_t x = 0; x < others; ++x) out[x] += mean.weights[j] * in[x];
    }
  }
  return result;
}

}  // namespace

Tensor to_picture(const TensorRef& bytes) {
  Tensor picture = Tensor::empty(bytes.shape, f32);
  copy_elements(bytes, picture);
  float* values = picture.data_as<float>();
  for (std::int64_t i = 0; i < picture.nelements(); ++i) values[i] /= 255;
  return picture;
}

Tensor to_bytes(const TensorRef& picture) {
  const std::vector<float> values = Tensor::adopt(picture, nullptr).values<float>();
  Tensor bytes = Tensor::empty(picture.shape, u8);
  std::uint8_t* out = bytes.data_as<std::uint8_t>();
  for (float value : values) *out++ = static_cast<std::uint8_t>(std::lround(255 * clamped(value)));
  return bytes;
}

Tensor reduce(const Tensor& picture, std::int64_t longest) {
  const std::int64_t height = picture.size(0), width = picture.size(1), channels = picture.size(2);
  const std::int64_t longer = std::max(height, width);
  if (longer <= longest) return picture;
  auto scaled = [&](std::int64_t extent) {
    return std::max<std::int64_t>(1, (2 * extent * longest + longer) / (2 * longer));
  };
  const std::int64_t rows = scaled(height), columns = scaled(width);
  const Tensor lower = reduce_rows(picture.reshape({height, width * channels}).contiguous(), rows);
  const Tensor turned = lower.reshape({rows, width, channels}).transpose(0, 1).contiguous();
  const Tensor narrower = reduce_rows(turned.reshape({width, rows * channels}), columns);
  return narrower.reshape({columns, rows, channels}).transpose(0, 1).contiguous();
}

Tensor add_noise(const Tensor& picture, double sigma, std::uint64_t seed) {
  Tensor noisy = Tensor::random_normal(picture.shape(), f32, seed, 0, sigma);
  const std::vector<float> values = picture.values<float>();
  float* out = noisy.data_as<float>();
  for (float value : values) *out++ += value;
  return noisy;
}

double psnr(const Tensor& picture, const Tensor& original) {
  if (picture.shape() != original.shape()) {
    throw ArgumentError(fmt::format("psnr: expected pictures of the same shape, given {} and {}",
                                    describe(picture.shape()), describe(original.shape())));
  }
  const std::vector<float> a = picture.values<float>(), b = original.values<float>();
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(clamped(a[i]) - clamped(b[i]), 2);
  if (sum == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(static_cast<double>(a.size()) / sum);
}

Tensor side_by_side(const std::vector<Tensor>& pictures, std::int64_t gap) {
  std::int64_t width = gap * (static_cast<std::int64_t>(pictures.size()) - 1), channels = 1;
  for (const Tensor& picture : pictures) {
    width += picture.size(1);
    channels = std::max(channels, picture.size(2));
  }
  const std::int64_t height = pictures.front().size(0);
  Tensor row = Tensor::full({height, width, channels}, f32, 1);
  std::int64_t at = 0;
  for (const Tensor& picture : pictures) {
    const TensorRef place = row.ref().slice(1, at, at + picture.size(1));
    copy_elements(picture.ref().expand({height, picture.size(1), channels}), place);
    at += picture.size(1) + gap;
  }
  return row;
}

}  // namespace tegula::image

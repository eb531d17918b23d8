// PNG files as tensors of bytes: [height, width, channels] with one channel (gray) or three (RGB).
//
// Reading takes every PNG: 16 bits become 8, palettes colours, and what is transparent is laid over white.
// A damaged, truncated or hostile file is an ArgumentError that names the file, the field and the offence;
// what the file claims is checked against its size before anything is allocated.
#pragma once
#include <string>

#include "tegula/tensor.hpp"

namespace tegula::image {

inline constexpr std::int64_t most_pixels = std::int64_t{1} << 26;

Tensor read_png(const std::string& path);
// `pixels` is u8 [height, width, 1 or 3] with any strides.
void write_png(const std::string& path, const TensorRef& pixels);

}  // namespace tegula::image

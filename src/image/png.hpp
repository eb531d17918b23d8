// PNG files as tensors of bytes: [height, width, channels] with one channel (gray) or three (RGB).
//
// Every PNG can be read: 16 bits become 8, palettes become colours, and transparent pixels are laid over
// white. A damaged, truncated or malicious file causes an ArgumentError that names the file, the field and
// the problem; the header is checked against the size of the file before anything is allocated.
#pragma once
#include <string>

#include "tegula/tensor.hpp"

namespace tegula::image {

inline constexpr std::int64_t most_pixels = std::int64_t{1} << 26;

Tensor read_png(const std::string& path);
// `pixels` is u8 [height, width, 1 or 3] with any strides.
void write_png(const std::string& path, const TensorRef& pixels);

}  // namespace tegula::image

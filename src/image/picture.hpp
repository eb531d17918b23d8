// Pictures as f32 tensors [height, width, channels] with values from 0 to 1.
#pragma once
#include "tegula/tensor.hpp"

namespace tegula::image {

// From u8 pixels and back; bytes are rounded to nearest, values outside [0, 1] are clamped.
Tensor to_picture(const TensorRef& bytes);
Tensor to_bytes(const TensorRef& picture);

// The picture with its longer side reduced to `longest` pixels, each the mean of what it covers; smaller
// pictures stay as they are.
Tensor reduce(const Tensor& picture, std::int64_t longest);

// The picture with normal noise of deviation `sigma` added; not clamped.
Tensor add_noise(const Tensor& picture, double sigma, std::uint64_t seed);

// Peak signal-to-noise ratio in dB of values clamped to [0, 1]; +∞ if they are equal.
double psnr(const Tensor& picture, const Tensor& original);

// Pictures of one height in a row, `gap` white columns between them; gray ones become RGB if one is.
Tensor side_by_side(const std::vector<Tensor>& pictures, std::int64_t gap);

}  // namespace tegula::image

// Tensors that exist during one call.
#pragma once
#include "tegula/tensor.hpp"

namespace tegula::ops {

// A new tensor for the time of a call; its elements are undefined. Unlike Tensor::empty it can be had while a
// graph is captured, and a device need not be waited for when it goes.
Tensor scratch(const Shape& shape, DType dtype, const Device& device);

}  // namespace tegula::ops

// The elements of a tensor in the order of files.
#pragma once
#include <fmt/format.h>

#include "tegula/error.hpp"
#include "tegula/tensor.hpp"

namespace tegula {

// The tensor itself if its elements already are so, otherwise a copy.
inline Tensor in_row_major_order(const TensorRef& tensor) {
  if (!tensor.device.is_cpu()) {
    throw ArgumentError(
        fmt::format("{} cannot be written to a file from there; copy it to the cpu first", describe(tensor)));
  }
  return Tensor::adopt(tensor, nullptr).contiguous();
}

}  // namespace tegula

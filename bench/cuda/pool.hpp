// Random inputs of any size from one pool on the device, because making gigabytes of random numbers on the
// host would take longer than the measurements.
#pragma once
#include "tegula/tensor.hpp"

namespace tegula::bench {

// Where the tensor after one that begins there begins: none shares memory with another, each begins at a line
// of the cache, as tensors of allocators do.
std::int64_t behind(std::int64_t begin, const Shape& shape);

class Pool {
 public:
  Pool(DType type, std::int64_t elements);

  // A contiguous tensor on the device from this element on, and an element of it as the host knows it.
  Tensor take(const Shape& shape, std::int64_t first) const;
  float at(std::int64_t first, std::int64_t index) const;

 private:
  Tensor values_, device_;
};

// On the device, for results: NaN, which no sample of a right result is.
Tensor unwritten(const Shape& shape, DType type);

}  // namespace tegula::bench

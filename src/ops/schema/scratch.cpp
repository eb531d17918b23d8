#include "ops/schema/scratch.hpp"

#include <memory>

#include "cuda/memory.hpp"

namespace tegula::ops {

Tensor scratch(const Shape& shape, DType dtype, const Device& device) {
  if (device.is_cpu()) return Tensor::empty(shape, dtype);
  const auto bytes = static_cast<std::size_t>(nelements(shape) * dtype.bytes());
  std::shared_ptr<void> memory = cuda::allocate_scratch(device.index, bytes);
  void* data = memory.get();
  return Tensor::adopt(TensorRef(data, dtype, shape, device), std::move(memory));
}

}  // namespace tegula::ops

// Memory of CUDA devices.
#pragma once
#include <memory>

#include "cuda/driver.hpp"
#include "tegula/tensor.hpp"

namespace tegula::cuda {

inline DeviceAddress address_of(const void* data) { return reinterpret_cast<DeviceAddress>(data); }

// Memory on a device, in the order of its current stream; freed in the order of that stream.
std::shared_ptr<void> allocate(int device, std::size_t bytes);

// The same for the time of one call: it must go before the stream may. So it is always freed in the order of
// the stream, which nothing waits for, and while the stream is captured it belongs to the graph.
std::shared_ptr<void> allocate_scratch(int device, std::size_t bytes);

// For tests: until the end of the scope what is allocated is filled with 0xff, which is NaN in every float
// type.
class PoisonedAllocations {
 public:
  PoisonedAllocations();
  ~PoisonedAllocations();
  PoisonedAllocations(const PoisonedAllocations&) = delete;
  PoisonedAllocations& operator=(const PoisonedAllocations&) = delete;
  static bool active();
};

// Fills with zero bytes, in the order of the current stream.
void clear(const TensorRef& tensor);

// As tegula::copy_elements, where one or both are on a device.
void copy_elements(const TensorRef& from, const TensorRef& to);

}  // namespace tegula::cuda

// Memory of CUDA devices.
#pragma once
#include <memory>

#include "cuda/driver.hpp"
#include "tegula/tensor.hpp"

namespace tegula::cuda {

inline DeviceAddress address_of(const void* data) { return reinterpret_cast<DeviceAddress>(data); }

// Memory on a device, in the order of its current stream; freed in the order of that stream.
std::shared_ptr<void> allocate(int device, std::size_t bytes);

// Fills with zero bytes, in the order of the current stream.
void clear(const TensorRef& tensor);

// As tegula::copy_elements, where one or both lie on a device.
void copy_elements(const TensorRef& from, const TensorRef& to);

}  // namespace tegula::cuda

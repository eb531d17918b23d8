// The number of processors of a device.
#pragma once
#include "tegula/tensor.hpp"

namespace tegula {

// Threads of the pool, or multiprocessors of a GPU.
int processors_of(const Device& device);

}  // namespace tegula

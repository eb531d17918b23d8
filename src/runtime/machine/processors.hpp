// How much of a device works at the same time.
#pragma once
#include "tegula/tensor.hpp"

namespace tegula {

// Threads of the pool, or multiprocessors of a GPU.
int processors_of(const Device& device);

}  // namespace tegula

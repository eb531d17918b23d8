// A Stream as the driver knows it.
#pragma once
#include "cuda/driver.hpp"
#include "tegula/stream.hpp"

namespace tegula::cuda {

inline StreamHandle handle_of(const Stream& stream) { return static_cast<StreamHandle>(stream.handle()); }

}  // namespace tegula::cuda

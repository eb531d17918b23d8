#pragma once
#include "tables.hpp"

namespace bundle {

// tegula_status; the work is queued on `stream` where the tensors are on a CUDA device.
std::int32_t run(const Kernel& kernel, const tegula_tensor* const* tensors, const Scalar* scalars,
                 void* stream);
const char* error();

}  // namespace bundle

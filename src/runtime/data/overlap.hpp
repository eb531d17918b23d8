// Whether tensors overlap.
#pragma once
#include "tegula/tensor.hpp"

namespace tegula {

// Whether some byte belongs to both. Exact for tensors of the same dtype and strides, otherwise by the ranges
// of addresses. A search that would take long counts as sharing.
bool share_bytes(const TensorRef& a, const TensorRef& b);

// Whether two elements of the tensor are on the same bytes.
bool overlaps_itself(const TensorRef& tensor);

}  // namespace tegula

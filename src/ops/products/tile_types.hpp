// What the instructions of a target ask of the tiles of a product.
#pragma once
#include "ops/schema/bound.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

// Whether plans are those of a GPU with copy engine and warp group products.
inline bool has_copy_engine(const BoundCall& call) {
  return call.on_gpu() && call.target() != tegula::Target::cuda_sm80();
}

// The type of tiles. Tensor cores take 8-bit floats that run along k in their tensors, or that a producer's
// warps transpose: `as_bytes`. Others are widened, exactly, where they are copied.
inline DType product_tile_type(const BoundCall& call, DType type, bool as_bytes) {
  if (!call.on_gpu() || type.bits() != 8) return multiplied_type(type, call.on_gpu());
  return as_bytes && has_copy_engine(call) ? type : f16;
}

}  // namespace tegula::ops

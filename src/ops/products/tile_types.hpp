// What the instructions of a target ask of the tiles of a product.
#pragma once
#include "ops/schema/bound.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

// Whether plans are those of a GPU with copy engine and warp group products.
inline bool has_copy_engine(const BoundCall& call) {
  return call.on_gpu() && call.target() != tegula::Target::cuda_sm80();
}

// The type of tiles: tensor cores take 8-bit floats that run along k; others are widened, exactly, where they
// are copied.
inline DType product_tile_type(const BoundCall& call, DType type, bool along_k) {
  if (!call.on_gpu() || type.bits() != 8) return multiplied_type(type, call.on_gpu());
  return along_k && has_copy_engine(call) ? type : f16;
}

}  // namespace tegula::ops

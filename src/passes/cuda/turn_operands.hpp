// Operands of 8 bits in an order that the tensor cores of Hopper GPUs do not read.
#pragma once
#include "ir/kernel.hpp"
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

// A tile [k, n] of 8-bit numbers that a copy brings from a tensor, and of which only products read B (or [k, m], which
// read A as its transpose), becomes a tile [n, k], where warp groups then multiply: the copy turns it.
ir::Kernel turn_operands(const ir::Kernel& kernel, const CudaTarget& target);

}  // namespace tegula::passes

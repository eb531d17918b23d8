// How warp groups hold the sums of products that the copy engine may store or add.
#pragma once
#include <unordered_map>

#include "ir/kernel.hpp"
#include "passes/cuda/plan_stores.hpp"

namespace tegula::passes {

using HeldSums = std::unordered_map<const ir::Buffer*, HeldSum>;

// Fragments that products by wgmma leave as the copy engine's way through shared memory expects them. One to
// which products are added in several ways is held as one of them needs it.
HeldSums held_sums(const ir::Grid& grid, const CudaTarget& target);

}  // namespace tegula::passes

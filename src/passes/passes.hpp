// What is done to a kernel before it is printed for a target.
#pragma once
#include "ir/kernel.hpp"

namespace tegula::passes {

// Copies between tiles, fills and reductions over strided elements become parallel loops, so that one way of
// printing serves them all; a product or reduction of what was just cleared overwrites.
ir::Kernel for_cpu(const ir::Kernel& kernel);

ir::Body merge_clears(const ir::Body& body);
ir::Body lower_tile_ops(const ir::Body& body);

}  // namespace tegula::passes

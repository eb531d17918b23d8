// Rows of tiles that limits cut off, and on which nothing depends: the copy engine may bring what follows
// them. Of rows outside the tensor, on which nothing depends, it need not bring anything.
#pragma once
#include "ir/kernel.hpp"
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

// Marks copies to shared tiles of whose elements no result depends on those that are cut off, and those in
// loops where none depends on rows outside. The rows of
// whole tiles are followed to the tensors, so that this comes before passes that divide tiles.
ir::Kernel drop_limits(const ir::Kernel& kernel, const CudaTarget& target);

}  // namespace tegula::passes

// The tiles of convolutions.
#pragma once
#include "ops/convolution/kernel.hpp"
#include "ops/convolution/shape.hpp"

namespace tegula::ops {

// Chooses the tile of a kernel whose pass and form are known. `made` are the extents of the pixels that tiles
// divide: of one phase, where there are phases. `threads` of the CPU share tiles (ProductProblem).
void plan_on_gpu(ConvKernel& kernel, const ConvShape& shape, const ConvShape::Three& made);
void plan_on_cpu(ConvKernel& kernel, const ConvShape& shape, const ConvShape::Three& made, int threads);

}  // namespace tegula::ops

// What a plan says of products that stay below the rates of their neighbours.
#pragma once
#include "ops/convolution/plan.hpp"
#include "ops/schema/launch.hpp"

namespace tegula::ops {

// On a GPU. `made` are the extents of the pixels that tiles divide.
void note_products(Launch& launch, const ConvKernel& kernel, const ConvShape& shape,
                   const ConvShape::Three& made);

// The same on a CPU.
void note_products_on_cpu(Launch& launch, const ConvKernel& kernel, const ConvShape& shape);

}  // namespace tegula::ops

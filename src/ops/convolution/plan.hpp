// The tiles of convolutions.
#pragma once
#include <optional>

#include "ops/convolution/channels.hpp"
#include "ops/convolution/shape.hpp"

namespace tegula::ops {

// Chooses the tile of a kernel whose pass and form are known. `made` are the extents of the pixels that tiles
// divide: of one phase, where there are phases. `threads` of the CPU share tiles (ProductProblem).
void plan_on_gpu(ConvKernel& kernel, const ConvShape& shape, const ConvShape::Three& made);
// Divides the groups of a shape by the number of those that are multiplied as one on a GPU, and returns it:
// groups of few channels leave tiles of products mostly empty, more than zeros among their weights do.
int merge_groups(ConvShape& shape, DType type);
void plan_on_cpu(ConvKernel& kernel, const ConvShape& shape, const ConvShape::Three& made, int threads);

// The kernel of groups that have few channels, of which tiles of products would be mostly empty; none where
// products are faster, or a tile of pixels that taps see has no room.
std::optional<ConvChannelsKernel> plan_channels(const ConvShape& shape, DType type, ConvPass pass,
                                                const ConvShape::Three& made, bool on_gpu);

}  // namespace tegula::ops

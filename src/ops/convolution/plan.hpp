// The tiles of convolutions.
#pragma once
#include <optional>
#include <vector>

#include "ops/convolution/channels.hpp"
#include "ops/convolution/shape.hpp"

namespace tegula::ops {

// Channels that a product sums over, and those that it makes, of a group.
struct Depths {
  std::int64_t summed, made;
};
Depths depths_of(const ConvKernel& kernel, const ConvShape& shape);

// The extents of the pixels that tiles divide.
ConvShape::Three planned_pixels(const ConvShape& shape, const ConvKernel& kernel);
// Chooses the tile of a kernel whose pass and form are known. `made` are the extents of the pixels that tiles
// divide: of one phase, where there are phases. `threads` of the CPU share tiles (ProductProblem).
void plan_on_gpu(ConvKernel& kernel, const ConvShape& shape, const ConvShape::Three& made);
void plan_on_cpu(ConvKernel& kernel, const ConvShape& shape, const ConvShape::Three& made, int threads);

// How many groups a GPU may multiply as one, with zeros among their weights: groups of few channels leave
// tiles of products mostly empty, more than zeros do. On a CPU the same of gradients of weights, whose
// products of a group and its neighbours are left out.
std::vector<int> merged_groups(const ConvShape& shape, DType type, bool on_gpu);
// Whether such products are faster than threads that add up the channels of groups; not those of single ones.
bool are_products(const ConvShape& shape, DType type);
// Chooses their number for a kernel, by which the groups of the shape are divided.
void merge_groups(ConvKernel& kernel, ConvShape& shape, bool on_gpu);

// The kernel of groups that have few channels, of which tiles of products would be mostly empty; none where
// products are faster, or a tile of pixels that taps see has no room.
std::optional<ConvChannelsKernel> plan_channels(const ConvShape& shape, DType type, ConvPass pass,
                                                const ConvShape::Three& made, bool on_gpu);

}  // namespace tegula::ops

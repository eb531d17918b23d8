// What the plans of all operators suppose.
#pragma once

namespace tegula::ops {

// Blocks that run at once. Not the processors of this machine: plans are the same on all, and so are results
// to the last bit and the kernels that are built in. Up to so many processors are kept busy alike.
inline constexpr int planned_processors = 8;
// Of an H100 SXM.
inline constexpr int gpu_processors = 132;

}  // namespace tegula::ops

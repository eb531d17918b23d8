// The tensor into which a kernel writes the times of its events: an additional parameter, i64 [grids, blocks,
// rows, words], see src/device/cuda/timeline.cuh.
#pragma once
#include "ir/ir.hpp"

namespace tegula::codegen {

inline constexpr const char* timeline_name = "tegula_timeline";
inline constexpr int timeline_rows = 8;  // groups of 128 threads that a block has at most

inline constexpr const char* events_key_word = "events_key";  // stands in the text until all events are known

// Null if the kernel has none.
ir::BufferPtr timeline_of(const ir::Kernel& kernel);

}  // namespace tegula::codegen

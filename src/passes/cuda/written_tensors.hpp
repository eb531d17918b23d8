// Which tensors need order among the writes of a block.
#pragma once
#include <vector>

#include "ir/ir.hpp"

namespace tegula::passes {

// Tensors of which a block may meet its own writes: all that it writes, but for those that one statement
// outside of loops, or one of each part of a branch, writes and none reads.
std::vector<ir::BufferPtr> written_tensors(const ir::Grid& grid);

}  // namespace tegula::passes

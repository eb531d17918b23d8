// Which tensors need order among the writes of a block.
#pragma once
#include <vector>

#include "ir/ir.hpp"

namespace tegula::passes {

// Tensors of which a block may meet its own writes: all that it writes, but for those that no statement reads
// and each element of which one statement, or one of each part of a branch, writes: copies of tiles to
// windows that lie apart, in loops, of less than 32 bits, those whose steps are apart and that have one name.
// What may be the same under another name is met where that is touched behind a write.
std::vector<ir::BufferPtr> written_tensors(const ir::Grid& grid, const ir::Kernel& kernel);

}  // namespace tegula::passes

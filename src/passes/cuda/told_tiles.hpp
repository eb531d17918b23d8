// Tiles by which the consumers of a block can tell its producer what to load.
#pragma once
#include <vector>

#include "ir/stmt.hpp"

namespace tegula::passes {

// Vectors in shared memory that loops over elements fill, outside of other loops, and that nothing reads
// before all of them is there.
std::vector<ir::BufferPtr> told_tiles(const ir::Body& body);

}  // namespace tegula::passes

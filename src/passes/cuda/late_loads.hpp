// What all blocks load alike is loaded where it is used.
//
// Weights of a norm, tables, a bias: a program loads them with the row, and uses them behind the sums of the row.
// Until then their registers keep other blocks off the processor, whose loads would be on their way meanwhile;
// and since every block reads the same elements, they are in the cache. So a fragment that is loaded from places
// which do not depend on the block, and first used behind a reduction, is loaded behind it.
#pragma once
#include "ir/kernel.hpp"

namespace tegula::passes {

ir::Body late_loads(const ir::Grid& grid);

}  // namespace tegula::passes

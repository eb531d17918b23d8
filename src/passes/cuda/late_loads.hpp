// Loads data that is the same for all blocks where it is used.
//
// Weights of a norm, tables, a bias: a program loads them with the row and uses them after the sums of the
// row. Until then their registers keep other blocks, whose loads could be in flight, off the processor; and
// since every block reads the same elements, they are in the cache. Therefore a fragment that is loaded from
// addresses that do not depend on the block, and is first used after a reduction, is loaded after it.
#pragma once
#include "ir/kernel.hpp"

namespace tegula::passes {

ir::Body late_loads(const ir::Grid& grid);

}  // namespace tegula::passes

// Exits that either all blocks of a grid take or none: their conditions do not depend on a block's index, and
// nothing precedes them. A persistent CTA evaluates them once, not for every block it takes.
#pragma once
#include <unordered_set>

#include "ir/kernel.hpp"

namespace tegula::passes {

// Their conditions.
std::unordered_set<const ir::ExprNode*> exits_of_all_blocks(const ir::Grid& grid);

}  // namespace tegula::passes

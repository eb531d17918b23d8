// Loops whose later steps do something that earlier ones do not, such as masking scores, become two loops:
// the steps without the branch are shorter, and the code around it runs in a better order.
#pragma once
#include <optional>

#include "ir/ir.hpp"

namespace tegula::passes {

struct SplitSteps {
  ir::For before, behind;  // the second has an index of its own
};

// Empty unless the body has exactly one branch whose condition, once true, stays true: a comparison of
// integers that are affine in the index, or an equality that holds in the last step alone. Empty, too, where
// products have few rows or columns.
std::optional<SplitSteps> split_steps(const ir::For& loop, const Loc& at);

}  // namespace tegula::passes

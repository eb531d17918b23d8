// Whether the steps of a loop access disjoint parts of a tensor.
#pragma once
#include "ir/stmt.hpp"

namespace tegula::passes {

// Whether no step touches an element of the tensor that another step touches, seen along one dimension: each
// statement of the loop touches base + factor · step + [low, high] there, with one base and one factor, and
// all these are within as many elements. False where a statement is of another kind. A factor may be one of
// the expressions that are `positive` where the loop runs, such as extents of its grid.
bool steps_are_apart(const ir::For& loop, const ir::Buffer& tensor,
                     const std::vector<ir::Expr>& positive = {});

}  // namespace tegula::passes

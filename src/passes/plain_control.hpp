// Removes unnecessary loops and branches: the body of a loop with one step, or of the only possible branch,
// is easier to analyse as part of its surroundings.
#pragma once
#include <functional>

#include "ir/stmt.hpp"

namespace tegula::passes {

// Whether the loop runs exactly once, which is known before the program runs.
bool has_one_step(const ir::For& loop);

// The statements of loops of one step in place of the loops, unless something in them leaves.
ir::Body without_single_steps(const ir::Body& body);

// Branches of the block whose other part holds a statement that is `wanted` become two branches.
ir::Body with_one_part(const ir::Body& body, const std::function<bool(const ir::Stmt&)>& wanted);

}  // namespace tegula::passes

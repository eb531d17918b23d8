// Which loads of a loop over elements find the same element for several iterations side by side.
//
// Numbers that a group of neighbours shares, such as the scale of 128 quantised weights, are found by a
// division: scale(i, j / 128). A thread has neighbours in registers, whole runs of them from a multiple of
// the run on, so where the run divides the group one load serves them all.
#pragma once
#include <vector>

#include "ir/bounds.hpp"
#include "ir/stmt.hpp"

namespace tegula::passes {

// Whether the value is the same for `run` values of the index in a row, the first of which is a multiple of
// `run`.
bool is_steady(const ir::Expr& e, const ir::VariablePtr& index, std::int64_t run, const ir::Facts& facts);

// The loads from tensors that so many iterations side by side along the last index share, in the loop's
// order; those that a store of the loop may come before are not among them. Nor are those that do not mention
// the index: the assembler sees itself that one is enough.
std::vector<ir::Stmt> steady_loads(const ir::For& loop, std::int64_t run, const ir::Facts& facts);

}  // namespace tegula::passes

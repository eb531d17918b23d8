// The instruction that computes a node of an expression.
#pragma once
#include "interp/program.hpp"

namespace tegula::interp {

// Frequent operations have a function of their own; all others go through ir::apply.
decltype(Instruction::run) operation_for(const ir::ExprNode& node);
// The way through ir::apply, for comparison.
void apply_generic(const Instruction& instruction, Machine& machine);

}  // namespace tegula::interp

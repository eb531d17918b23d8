// Smaller versions of a program, and the repair of what is left.
#pragma once
#include <functional>

#include "fuzz/program.hpp"

namespace tegula::fuzz {

int count_statements(const ir::Kernel& kernel);

// The kernel with `f` of each statement from number `first` on (outer ones first), `count` of them, in its
// place.
using StmtEdit = std::function<ir::Body(const ir::Stmt&)>;
ir::Kernel with_statements(const ir::Kernel& kernel, int first, int count, const StmtEdit& f);

// Without what refers to tiles and variables that are no longer there; such variables in expressions are 0.
ir::Kernel repaired(const ir::Kernel& kernel);

// The kernel with another expression in place of the node number `number`; nothing if there is none.
using ExprEdit = std::function<ir::Expr(const ir::Expr&)>;
std::optional<ir::Kernel> with_expression(const ir::Kernel& kernel, int number, const ExprEdit& f);

// The program in which the extent `from` is `to`, of tiles, loops, tensors and their arguments.
Program with_extent(const Program& program, std::int64_t from, std::int64_t to);
// Without the grid.
ir::Kernel without_grid(const ir::Kernel& kernel, std::size_t grid);
// All extents and constants of more than 1, the largest first.
std::vector<std::int64_t> extents_of(const Program& program);

// The program with another kernel.
Program with_kernel(const Program& program, ir::Kernel kernel);

}  // namespace tegula::fuzz

// Smaller versions of a kernel, and the repair of the result.
#pragma once
#include <functional>
#include <optional>

#include "ir/ir.hpp"

namespace tegula::reduce_kernels {

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

// Without the grid.
ir::Kernel without_grid(const ir::Kernel& kernel, std::size_t grid);

}  // namespace tegula::reduce_kernels

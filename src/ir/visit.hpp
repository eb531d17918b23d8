// Walks over a kernel, and rewrites that share unchanged children.
#pragma once
#include <functional>
#include <unordered_map>

#include "ir/kernel.hpp"

namespace tegula::ir {

// Every statement, outer ones first, each before the next.
void for_each_stmt(const Body& body, const std::function<void(const Stmt&)>& f);
void for_each_stmt(const Kernel& kernel, const std::function<void(const Stmt&)>& f);

// The bodies, views and whole expressions that belong to the statement itself, those of nested statements
// left out; expressions inside its views are included.
void for_each_body(const Stmt& stmt, const std::function<void(const Body&)>& f);
void for_each_view(const Stmt& stmt, const std::function<void(const View&)>& f);
void for_each_expr(const Stmt& stmt, const std::function<void(const Expr&)>& f);
void for_each_expr(const View& view, const std::function<void(const Expr&)>& f);
// The variables that the statement itself defines, and the tile that it declares.
void for_each_definition(const Stmt& stmt, const std::function<void(const VariablePtr&)>& f);

// Every node of the expression once, operands before the operations on them.
void for_each_node(const Expr& e, const std::function<void(const Expr&)>& f);
void for_each_variable(const Expr& e, const std::function<void(const VariablePtr&)>& f);
bool uses(const Expr& e, const VariablePtr& variable);
bool is_variable(const Expr& e, const VariablePtr& variable);

using ExprMap = std::function<Expr(const Expr&)>;
using BodyMap = std::function<Body(const Body&)>;

// The same operation on other operands.
Expr with_args(const Expr& e, std::vector<Expr> args);
// `f` of every node, operands first: what it is given already has the new operands.
Expr rewrite(const Expr& e, const ExprMap& f);

// What to do with the children of a statement; an empty function leaves them.
struct Mapping {
  ExprMap expr;  // of whole expressions, those in views too
  BodyMap body;
  std::function<BufferPtr(const BufferPtr&)> buffer;        // of views and declarations
  std::function<VariablePtr(const VariablePtr&)> variable;  // defined or assigned
  std::function<View(const View&)> view;                    // whole views, in place of what is above
};
View map(const View& view, const Mapping& mapping);
Stmt map(const Stmt& stmt, const Mapping& mapping);
Body map(const Body& body, const Mapping& mapping);

// `f` of every expression of the statements and of all nested ones.
Body map_exprs(const Body& body, const ExprMap& f);
// `f` of every statement, nested ones first: what it is given already has the new bodies.
Body map_body(const Body& body, const std::function<Body(const Stmt&)>& f);
// `f` of the body of every grid.
Kernel map_grids(const Kernel& kernel, const std::function<Body(const Grid&)>& f);

using Substitution = std::unordered_map<VariablePtr, Expr>;
using BufferRenaming = std::unordered_map<BufferPtr, BufferPtr>;

Expr substitute(const Expr& e, const Substitution& by);
// A variable that the body assigns can only be replaced by a variable.
Body substitute(const Body& body, const Substitution& by);
Body rename_buffers(const Body& body, const BufferRenaming& by);
// A copy whose own variables and tiles are new ones, so that both may stand in one kernel.
Body fresh_copy(const Body& body);

}  // namespace tegula::ir

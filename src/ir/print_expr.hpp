// Expressions and views as text: infix with the parentheses that C++ would need, and names that tell apart
// variables of one name.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/stmt.hpp"

namespace tegula::ir {

// A name for everything in scope, no two alike.
class Names {
 public:
  std::string of(const VariablePtr& variable) { return of(variable.get(), variable->name, "v"); }
  std::string of(const BufferPtr& buffer) { return of(buffer.get(), buffer->name, "t"); }

  void enter() { scopes_.emplace_back(); }
  void leave();

 private:
  std::string of(const void* identity, const std::string& wanted, const char* otherwise);

  std::unordered_map<const void*, std::string> names_;
  std::unordered_map<std::string, const void*> taken_;
  std::vector<std::vector<const void*>> scopes_{1};
};

class ExprPrinter {
 public:
  // The read that defines `variable` is written where the variable is used.
  void write_in_place(const VariablePtr& variable, const Stmt& read) { in_place_[variable.get()] = read; }

  std::string operator()(const Expr& e) { return expr(e, 0); }
  // `extents` replaces those of the view, see Copy.
  std::string operator()(const View& view) { return operator()(view, view.extents); }
  std::string operator()(const View& view, const std::vector<Expr>& extents);
  std::string operator()(const Access& access);
  std::string shape(const std::vector<Expr>& extents);  // "[M, 64]"

  Names names;

 private:
  std::string expr(const Expr& e, int least);
  std::string node(const Expr& e, int precedence);
  std::string variable(const VariablePtr& v);
  std::string list(const std::vector<Expr>& exprs);
  std::string base(const View& view);
  std::string range(const ViewDim& dim, const Expr& full, const Expr& extent);
  std::string limits(const ViewDim& dim, const Expr& full);

  std::unordered_map<const Variable*, Stmt> in_place_;
};

}  // namespace tegula::ir

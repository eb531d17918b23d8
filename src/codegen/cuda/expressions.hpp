// Expressions that each thread computes, as text over named variables, simplified by the known facts about
// these.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "codegen/cuda/step_writer.hpp"
#include "codegen/text.hpp"
#include "ir/bounds.hpp"

namespace tegula::codegen {

// `tg::bf16`: the type of an element in memory.
std::string element_type(DType type);

class Expressions {
 public:
  Expressions(Names& names, StepWriter& out) : names_(names), out_(out) {}

  ir::Facts facts;

  // Definitions of what an expression has several times come first.
  std::string value(const ir::Expr& e);
  std::string variable_text(const ir::VariablePtr& variable) const;
  bool has(const ir::VariablePtr& variable) const { return names_of_.contains(variable.get()); }
  std::string name_variable(const ir::VariablePtr& variable);
  // The variable is `text` from here on.
  void set(const ir::VariablePtr& variable, std::string text) { names_of_[variable.get()] = std::move(text); }
  // The variable was loaded from elements of the type.
  void set_stored(const ir::VariablePtr& variable, DType type) {
    stored_types_.insert_or_assign(variable.get(), type);
  }
  // The expression has a name, until all those names are forgotten.
  void set_name(const ir::Expr& e, std::string name) { named_.emplace_back(e, std::move(name)); }
  void forget_names() { named_.clear(); }
  void forget_names(const ir::VariablePtr& of);  // of expressions that it is part of

  bool is_less(const ir::Expr& a, const ir::Expr& b, std::int64_t by = 1) const;  // or equal, by 0
  bool is_at_least(const ir::Expr& a, std::int64_t least) const;
  // Whether the type holds the value without rounding it.
  bool is_exact(const ir::Expr& value, DType type) const;

 private:
  std::string emit(const ir::Expr& e);
  std::string emit_node(const ir::Expr& e);
  std::optional<std::string> masked(const ir::Expr& e);
  std::string emit_cast(const ir::Expr& e, const std::string& x);
  std::string infix_text(const ir::Expr& e, std::string_view symbol, std::vector<std::string> x);
  std::string emit_division(const ir::Expr& e, const std::vector<std::string>& x);

  Names& names_;
  StepWriter& out_;
  std::unordered_map<const ir::Variable*, std::string> names_of_;
  std::unordered_map<const ir::Variable*, DType> stored_types_;
  std::vector<std::pair<ir::Expr, std::string>> named_;
  std::unordered_map<const ir::ExprNode*, std::string> common_;  // of the expression being printed
  std::unordered_set<const ir::ExprNode*> repeated_;
};

}  // namespace tegula::codegen

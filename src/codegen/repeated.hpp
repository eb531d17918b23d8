// What an expression uses more than once: printers name it first.
#pragma once
#include <unordered_map>
#include <unordered_set>

#include "ir/visit.hpp"

namespace tegula::codegen {

inline std::unordered_set<const ir::ExprNode*> repeated_in(const ir::Expr& e) {
  std::unordered_set<const ir::ExprNode*> repeated;
  std::unordered_map<const ir::ExprNode*, int> uses;
  ir::for_each_node(e, [&](const ir::Expr& node) {
    for (const ir::Expr& arg : node->args) {
      if (!arg->args.empty() && ++uses[arg.get()] > 1) repeated.insert(arg.get());
    }
  });
  return repeated;
}

}  // namespace tegula::codegen

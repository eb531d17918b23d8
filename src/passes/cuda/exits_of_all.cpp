#include "passes/cuda/exits_of_all.hpp"

#include "ir/effects.hpp"

namespace tegula::passes {

using namespace ir;

std::unordered_set<const ExprNode*> exits_of_all_blocks(const Grid& grid) {
  std::unordered_set<const ExprNode*> result;
  const Effects all = all_effects(grid.body);
  std::unordered_set<const Variable*> own;  // that differ among blocks
  for (const VariablePtr& index : grid.index) own.insert(index.get());
  for (const Stmt& s : grid.body) {
    const auto* load = as<Load>(s);
    const auto* exit = as<Exit>(s);
    if (!load && !exit && !as<Let>(s) && !as<Declare>(s)) break;
    const Effects here = effects(s);
    bool differs = load && all.writes(load->from.view.buffer);
    for (const VariablePtr& v : here.used) differs |= own.contains(v.get());
    if (exit && !differs) result.insert(exit->condition.get());
    if (!differs) continue;
    for (const VariablePtr& v : here.defined) own.insert(v.get());
  }
  return result;
}

}  // namespace tegula::passes

#include "passes/cuda/dealt_steps.hpp"

#include "ir/effects.hpp"

namespace tegula::passes {

using namespace ir;

Stmt by_first_group(const Stmt& s, const VariablePtr& group, Reason& reason) {
  const Effects e = all_effects(s);
  bool tensors = e.reports, others = e.leaves || !e.assigned.empty();
  for (const Region& r : e.regions) {
    if (!is_write(r.touch)) continue;
    const bool is_tensor = !r.view->is_tile();
    (is_tensor ? tensors : others) = true;
    if (r.view->buffer->space == Space::shared)
      reason = {"threads write a shared tile outside of the loop", ""};
  }
  if (e.leaves) reason = {"the block may end behind work on tiles", ""};
  if (!tensors) return s;
  if (others) reason = {"a statement writes tensors and tiles", ""};
  const Expr first = make(Op::eq, boolean, {variable(group, s->at), int32(0, s->at)}, s->at);
  return statement(If{first, {s}, {}}, s->at);
}

}  // namespace tegula::passes

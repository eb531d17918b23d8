#include "passes/cuda/pair_blocks.hpp"

#include <algorithm>
#include <unordered_set>

#include "ir/effects.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

using Variables = std::unordered_set<const Variable*>;

bool mentions(const Expr& e, const Variables& variables) {
  bool found = false;
  for_each_variable(e, [&](const VariablePtr& v) { found |= variables.contains(v.get()); });
  return found;
}

// The variables that depend on one.
Variables dependents(const Body& body, const VariablePtr& variable) {
  Variables result{variable.get()};
  for (std::size_t known = 0; known != result.size();) {
    known = result.size();
    for_each_stmt(body, [&](const Stmt& s) {
      bool depends = false;
      for_each_expr(s, [&](const Expr& e) { depends |= mentions(e, result); });
      const Effects e = effects(s);
      if (!depends) return;
      for (const VariablePtr& v : e.defined) result.insert(v.get());
      for (const VariablePtr& v : e.assigned) result.insert(v.get());
    });
  }
  return result;
}

// Whether all control of the role is the same for both blocks.
bool is_in_step(const Body& body, const Variables& own) {
  bool same = true;
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    const bool control =
        as<If>(s) || as<While>(s) || as<Break>(s) || (loop && loop->kind != LoopKind::parallel);
    // What a variable holds may depend on the branches in which it was assigned.
    same &= !as<Exit>(s) && !as<Assert>(s) && !as<Assign>(s);
    if (control) for_each_expr(s, [&](const Expr& e) { same &= !mentions(e, own); });
  });
  return same;
}

// The dimension of the tensor along which a load can be halved; -1 if the blocks load different tiles, or
// halves would not be whole patterns of the swizzle.
int halved_dim(const Copy& copy, const TensorCopy& plan, const Variables& own) {
  bool same = true;
  for_each_expr(copy.from, [&](const Expr& e) { same &= !mentions(e, own); });
  if (!same || copy.to.rank() != 2 || !is_whole(copy.to) || copy.to.extent(0) % 16 != 0 ||
      plan.first_row != 0)
    return -1;
  for (std::size_t d = 0; d + 1 < copy.from.dims.size(); ++d) {
    if (copy.from.dims[d].axis == 0) return static_cast<int>(d);
  }
  return -1;
}

}  // namespace

void pair_blocks(const Grid& grid, Roles& roles) {
  // Warp groups to which steps or their parts are dealt go without what a pair shares.
  if (roles.dealt || !roles.one_loader || roles.dynamic_tiles || roles.rings.size() != 1 ||
      roles.blocks_per_processor != 1)
    return;
  std::int64_t most = 0;
  std::unordered_map<const StmtNode*, int> chosen;
  for (std::size_t i = 0; i < grid.index.size(); ++i) {
    const Variables own = dependents(grid.body, grid.index[i]);
    if (!is_in_step(roles.producer, own) || !is_in_step(roles.consumer, own)) continue;
    std::int64_t bytes = 0;
    std::unordered_map<const StmtNode*, int> halved;
    for_each_stmt(roles.producer, [&](const Stmt& s) {
      const auto plan = roles.copies.find(s.get());
      if (plan == roles.copies.end()) return;
      const Copy& copy = *as<Copy>(s);
      const int dim = halved_dim(copy, plan->second, own);
      if (dim < 0) return;
      halved.emplace(s.get(), dim);
      bytes += copy.to.buffer->elements() * copy.to.buffer->type.bytes();
    });
    if (bytes > most) most = bytes, chosen = halved, roles.pair_index = static_cast<int>(i);
  }
  for (const auto& [stmt, dim] : chosen) {
    TensorCopy& plan = roles.copies.at(stmt);
    plan.halved = dim;
    plan.box[static_cast<std::size_t>(dim)] /= 2;
  }
}

}  // namespace tegula::passes

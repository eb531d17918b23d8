#include "passes/cuda/plan_additions.hpp"

#include <utility>

#include "ir/simplify.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

std::optional<TensorStore> plan_addition(const Accumulate& n, const HeldSums& sums, const Loc& at) {
  const auto sum = sums.find(n.tile.buffer.get());
  if (n.op != AtomicOp::add || n.to.buffer->type != f32 || sum == sums.end() || sum->second.turned)
    return std::nullopt;
  if (n.turn && !is_constant(simplify(can_transfer(n.to, n.tile, at), Facts()), 1)) return std::nullopt;
  return plan_store(n.tile, n.to, sum->second);
}

TurnWords words_of_blocks(const Grid& grid, const HeldSums& sums) {
  TurnWords result;
  std::unordered_map<const Buffer*, std::pair<HeldSum, bool>> parts;
  for_each_stmt(grid.body, [&](const Stmt& s) {
    const auto* n = as<Accumulate>(s);
    if (!n || !n->turn) return;
    const Buffer* const words = n->turn->view.buffer.get();
    const auto plan = plan_addition(*n, sums, s->at);
    if (!plan) return (void)result.insert(words);
    const std::pair own(sums.at(n->tile.buffer.get()), plan->transposed);
    if (parts.try_emplace(words, own).first->second != own) result.insert(words);
  });
  return result;
}

}  // namespace tegula::passes

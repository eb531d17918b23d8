#include "passes/cuda/deal_steps.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/dealt_loop.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/registers.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

class Dealing {
 public:
  Dealing(const Roles& roles, const CudaTarget& target)
      : roles_(roles),
        target_(target),
        result_(roles),
        group_(new_variable("group", i32, VariableKind::index, {})) {}

  Planned<Roles> run() {
    // Both groups hold a tile longer than the block did: what threads look up or convert would come too late.
    if (!roles_.one_loader || roles_.stores() || roles_.cluster() > 1) return Reason{};
    find_loops(roles_.consumer);
    if (!reason_.why.empty() || steps_.empty()) return reason_;
    columns_.emplace(steps_.begin()->second.sum, group_, dealt_groups);
    join_rings();
    const auto is_prefix = [&](const Stmt& s) {
      return as<Let>(s) || as<Load>(s) || as<Assert>(s) || as<Exit>(s);
    };
    const auto begin = std::find_if_not(roles_.consumer.begin(), roles_.consumer.end(), is_prefix);
    const Body divided = body({begin, roles_.consumer.end()});
    if (!reason_.why.empty()) return reason_;
    const Loc& at = divided.front()->at;
    const Stmt groups = statement(
        For{LoopKind::warp_groups, {group_}, {int32(0, at)}, {int32(dealt_groups, at)}, 0, divided}, at);
    result_.consumer.assign(roles_.consumer.begin(), begin);
    result_.consumer.insert(result_.consumer.end(), tiles_.begin(), tiles_.end());
    result_.consumer.push_back(groups);
    dealt_.group = group_;
    result_.dealt = std::move(dealt_);
    if (fits(roles_) && !fits(result_))
      return Reason{"what a warp group alone needs does not fit into registers", ""};
    return std::move(result_);
  }

 private:
  bool fits(const Roles& roles) const {
    return fit(register_needs(roles.consumer, roles.consumers, target_), roles, roles.blocks_per_processor);
  }

  void fail(Reason reason) {
    if (reason_.why.empty()) reason_ = std::move(reason);
  }

  // Loops that take tiles of rings, all of which are to be dealt.
  void find_loops(const Body& statements) {
    for_each_stmt(statements, [&](const Stmt& s) {
      const auto* loop = as<For>(s);
      if (!loop || loop->kind != LoopKind::pipelined) return;
      auto shares = step_shares(*loop, roles_, target_);
      if (!shares) {
        steps_.clear();
        skipped_ = true;
        return fail(shares.reason());
      }
      const bool other = !steps_.empty() && steps_.begin()->second.sum != shares->sum;
      skipped_ |= other;
      steps_.emplace(s.get(), std::move(*shares));
    });
    if (skipped_) steps_.clear();
  }

  // Tiles of a step that come alike also go together.
  void join_rings() {
    for (const auto& [loop, step] : steps_) {
      for (std::size_t i = 0; i < step.tiles.size(); ++i) {
        const int first = ring_of(step.tiles[i]);
        for (std::size_t j = i + 1; j < step.tiles.size(); ++j) join(first, ring_of(step.tiles[j]));
      }
    }
  }

  int ring_of(const Stmt& declaration) const { return result_.ring_of(as<Declare>(declaration)->tile.get()); }

  void join(int first, int other) {
    RingPlan &to = result_.rings[static_cast<std::size_t>(first)],
             &from = result_.rings[static_cast<std::size_t>(other)];
    const bool alike =
        to.depth == from.depth && to.by_rows == from.by_rows && !to.is_awaited && !from.is_awaited;
    if (first >= other || !alike) return;
    to.tiles.insert(to.tiles.end(), from.tiles.begin(), from.tiles.end());
    result_.rings.erase(result_.rings.begin() + other);
  }

  Body body(const Body& statements) {
    Body result;
    for (const Stmt& s : statements) {
      const auto step = steps_.find(s.get());
      if (step != steps_.end())
        result.push_back(
            dealt_loop(*as<For>(s), s->at, {step->second, *columns_, group_, result_}, dealt_, tiles_));
      else
        result.push_back(outside(s));
    }
    return result;
  }

  // A statement outside of the loops: each group has its columns; what has none is done by both, but what
  // leaves anything outside of the block by the first one.
  Stmt outside(const Stmt& s) {
    const auto* loop = as<For>(s);
    const bool has_steps = as<If>(s) || as<While>(s) || (loop && loop->kind != LoopKind::parallel);
    if (has_steps) {
      Mapping mapping;
      mapping.body = [&](const Body& inner) { return body(inner); };
      return map(s, mapping);
    }
    if (columns_->touches(s)) {
      if (const auto own = columns_->divided(s)) return *own;
      fail({"work outside of the loop takes sums of all columns together", ""});
      return s;
    }
    return by_first_group(s);
  }

  Stmt by_first_group(const Stmt& s) {
    const Effects e = all_effects(s);
    bool tensors = e.reports, others = e.leaves || !e.assigned.empty();
    for (const Region& r : e.regions) {
      if (!is_write(r.touch)) continue;
      const bool is_tensor = !r.view->is_tile();
      (is_tensor ? tensors : others) = true;
      if (r.view->buffer->space == Space::shared)
        fail({"threads write a shared tile outside of the loop", ""});
    }
    if (e.leaves) fail({"the block may end behind work on tiles", ""});
    if (!tensors) return s;
    if (others) fail({"a statement writes tensors and tiles", ""});
    const Expr first = make(Op::eq, boolean, {variable(group_, s->at), int32(0, s->at)}, s->at);
    return statement(If{first, {s}, {}}, s->at);
  }

  const Roles& roles_;
  const CudaTarget& target_;
  Roles result_;
  const VariablePtr group_;
  std::unordered_map<const StmtNode*, StepShares> steps_;
  std::optional<OwnColumns> columns_;
  DealtSteps dealt_;
  Body tiles_;  // of messages
  Reason reason_;
  bool skipped_ = false;  // a loop is not of this kind
};

}  // namespace

Planned<Roles> deal_steps(const Roles& roles, const CudaTarget& target) {
  return Dealing(roles, target).run();
}

}  // namespace tegula::passes

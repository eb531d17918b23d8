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
    // Both groups hold a tile longer than the block did: what threads convert would come too late.
    const bool converts = std::any_of(roles_.rings.begin(), roles_.rings.end(), [&](const RingPlan& ring) {
      return roles_.is_brought_by_threads(ring);
    });
    if (converts || !roles_.transposer.empty() || roles_.stores() || roles_.cluster() > 1) return Reason{};
    if (const Reason reason = find_loop(); !loop_) return reason;
    columns_.emplace(step_->sum, group_, dealt_groups);
    join_rings();
    if (!reason_.why.empty()) return reason_;
    halves_ = StepHalves::of(*step_, result_, group_, target_);
    if (halves_) halves_->divide(result_);
    // Pieces by threads take longer than boxes: they come too late for whole tiles.
    if (!halves_ && !roles_.one_loader) return Reason{};
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

  // The one loop of the block.
  Reason find_loop() {
    const auto is_loop = [](const Stmt& s) {
      const auto* loop = as<For>(s);
      return loop && loop->kind == LoopKind::pipelined;
    };
    int loops = 0;
    for_each_stmt(roles_.consumer, [&](const Stmt& s) { loops += is_loop(s); });
    const auto found = std::find_if(roles_.consumer.begin(), roles_.consumer.end(), is_loop);
    if (loops != 1 || found == roles_.consumer.end()) return {};
    auto step = step_shares(*as<For>(*found), roles_, target_);
    if (!step) return step.reason();
    loop_ = *found;
    step_ = std::move(*step);
    return {};
  }

  // Tiles that come as those do by which both groups multiply come and go with them. Others, and those that
  // the producer reads too, are let go by the step's own group: only its work reads them.
  void join_rings() {
    const RingPlan& of_both =
        roles_.rings[static_cast<std::size_t>(roles_.ring_of(step_->product().b.buffer.get()))];
    std::vector<RingPlan> rings;
    rings.reserve(result_.rings.size());
    RingPlan* joined = nullptr;
    std::size_t tiles = 0;
    for (const RingPlan& ring : result_.rings) {
      tiles += ring.in_loop ? ring.tiles.size() : 0;
      const bool joins =
          ring.in_loop && !ring.is_awaited && ring.depth == of_both.depth && ring.by_rows == of_both.by_rows;
      if (joins && joined) {
        joined->tiles.insert(joined->tiles.end(), ring.tiles.begin(), ring.tiles.end());
        continue;
      }
      rings.push_back(ring);
      if (joins) joined = &rings.back();
      rings.back().by_one_group = ring.in_loop && !joins;
    }
    if (!joined || tiles != step_->tiles.size()) return fail({"tiles of a step come in different ways", ""});
    result_.rings = std::move(rings);
  }

  Body body(const Body& statements) {
    Body result;
    for (const Stmt& s : statements) {
      const bool is_dealt = s == loop_;
      result.push_back(is_dealt ? dealt_loop(*as<For>(s), s->at,
                                             {*step_, *columns_, halves_, group_, result_}, dealt_, tiles_)
                                : outside(s));
    }
    return result;
  }

  // A statement outside of the loop: each group has its columns; what has none is done by both, but what
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
    Reason reason;
    const Stmt result = by_first_group(s, group_, reason);
    if (!reason.why.empty()) fail(std::move(reason));
    return result;
  }

  const Roles& roles_;
  const CudaTarget& target_;
  Roles result_;
  const VariablePtr group_;
  Stmt loop_;
  std::optional<StepShares> step_;
  std::optional<OwnColumns> columns_;
  std::optional<StepHalves> halves_;
  DealtSteps dealt_;
  Body tiles_;  // of messages
  Reason reason_;
};

}  // namespace

Planned<Roles> deal_steps(const Roles& roles, const CudaTarget& target) {
  return Dealing(roles, target).run();
}

}  // namespace tegula::passes

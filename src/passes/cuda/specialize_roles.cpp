#include "passes/cuda/specialize_roles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/by_any_name.hpp"
#include "passes/cuda/chosen_steps.hpp"
#include "passes/cuda/filled_tiles.hpp"
#include "passes/cuda/fragment_forms.hpp"
#include "passes/cuda/loads_first.hpp"
#include "passes/cuda/lower.hpp"
#include "passes/cuda/plan_copies.hpp"
#include "passes/cuda/plan_rows.hpp"
#include "passes/cuda/ring_candidates.hpp"
#include "passes/cuda/role_reasons.hpp"
#include "passes/cuda/rows_beside_sums.hpp"
#include "passes/cuda/shared_rings.hpp"
#include "passes/cuda/told_tiles.hpp"
#include "passes/cuda/transpose_loads.hpp"
#include "passes/plain_control.hpp"
#include "passes/slice.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int most_threads = 1024;  // of a block

// Where in a body a tile is first and last used.
std::pair<std::size_t, std::size_t> uses_of(const Body& body, const BufferPtr& tile) {
  std::size_t first = body.size(), last = 0;
  for (std::size_t i = 0; i < body.size(); ++i) {
    for (const Region& r : all_effects(body[i]).regions) {
      if (r.view->buffer == tile) first = std::min(first, i), last = i;
    }
  }
  return {first, last};
}

class Analysis {
 public:
  Analysis(const Grid& grid, const Tensors& written, const CudaTarget& target)
      : grid_(grid), target_(target), written_(written) {}
  Planned<Roles> run();

 private:
  void find_told();
  std::optional<Reason> drop_for_own_copies();
  bool comes_late(const RingCandidate& c) const {
    return target_.copy_engine && may_come_late(c, is_operand(c.tile));
  }
  bool comes_in_pieces(const RingCandidate& c) const {
    return target_.copy_engine && std::all_of(c.fills.begin(), c.fills.end(),
                                              [](const Stmt& s) { return plan_pieces(s).has_value(); });
  }
  bool comes_in_boxes(const RingCandidate& c) const {
    return target_.copy_engine && std::all_of(c.fills.begin(), c.fills.end(), [&](const Stmt& s) {
             const auto* copy = as<Copy>(s);
             return copy && plan_copy(*copy, is_operand(c.tile));
           });
  }
  bool feeds_wgmma(const BufferPtr& tile) const;
  bool is_worth_a_producer(const RingCandidate& c) const;
  bool is_operand(const BufferPtr& tile) const;
  void plan_loads(Roles& roles) const;
  bool is_uneven() const;
  Reason leaves_early() const;
  bool is_fill(const Stmt& s) const;
  bool has_fill(const Body& body) const;
  bool is_between(const Body& body, std::size_t at) const;
  Planned<Body> producer_of(const std::vector<RingCandidate>& candidates) const;
  Planned<Body> consumer_of(const std::vector<RingCandidate>& candidates) const;
  void make_rings(Roles& roles, const std::vector<RingCandidate>& candidates) const;

  const Grid& grid_;
  const CudaTarget& target_;
  const Tensors& written_;
  FilledTiles tiles_;
  std::vector<BufferPtr> told_;  // tiles that the consumers fill for the producer
};

bool declares(const Body& body, const BufferPtr& tile) {
  bool found = false;
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* declared = as<Declare>(s);
    found |= declared && declared->tile == tile;
  });
  return found;
}

// Where what a loop loads depends on a tile that the consumers alone can fill, they tell the producer.
void Analysis::find_told() {
  std::vector<BufferPtr> needed;
  const std::vector<BufferPtr> possible = told_tiles(grid_.body);
  for (const RingCandidate& c : tiles_.candidates) {
    if (possible.empty() || !c.pipelined || !feeds_wgmma(c.tile) || producer_of({c})) continue;
    told_ = possible;
    const auto alone = producer_of({c});
    told_.clear();
    if (!alone) continue;
    const Effects loads = all_effects(*alone);
    for (const BufferPtr& tile : possible)
      if (loads.reads(tile) && !is_among(needed, tile.get())) needed.push_back(tile);
  }
  told_ = std::move(needed);
}

// Tiles that are no ring: the producer has its own copy of what the consumers do not use, and each role one
// of what the producer reads before all of it is brought. The reason if there can be no roles.
std::optional<Reason> Analysis::drop_for_own_copies() {
  const auto producer = producer_of(tiles_.candidates), consumer = consumer_of(tiles_.candidates);
  if (!producer) return producer.reason();
  if (!consumer) return consumer.reason();
  std::erase_if(tiles_.candidates, [&](const RingCandidate& c) {
    return !declares(*consumer, c.tile) || (comes_late(c) && reads_between(*producer, c));
  });
  return std::nullopt;
}

bool Analysis::feeds_wgmma(const BufferPtr& tile) const {
  const std::vector<TeamProduct> products = team_products(grid_.body, grid_.hints.threads);
  return std::any_of(products.begin(), products.end(), [&](const TeamProduct& own) {
    if (own.gemm->a.buffer != tile && own.gemm->b.buffer != tile) return false;
    return plan_gemm(*own.gemm, own.threads, target_).instruction == GemmInstruction::wgmma;
  });
}

// Operands of products are. Where there are none, blocks that stay have the next block's tiles brought
// meanwhile, if the program asks for such blocks.
bool Analysis::is_worth_a_producer(const RingCandidate& c) const {
  if (grid_.hints.persistent && team_products(grid_.body, grid_.hints.threads).empty()) return true;
  return c.pipelined && feeds_wgmma(c.tile);
}

bool Analysis::is_operand(const BufferPtr& tile) const {
  bool found = tiles_with_conflicts(grid_.body).contains(tile.get());
  for_each_stmt(grid_.body, [&](const Stmt& s) {
    const auto* gemm = as<Gemm>(s);
    found |= gemm && is_on_tensor_cores(*gemm) && (gemm->a.buffer == tile || gemm->b.buffer == tile);
  });
  return found;
}

// Whether the steps of some pipelined loop differ from block to block.
bool Analysis::is_uneven() const {
  bool uneven = grid_.hints.order == GridOrder::heavy_first;
  for_each_stmt(grid_.body, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    if (!loop || loop->kind != LoopKind::pipelined) return;
    uneven |= goes_on(*loop) != nullptr;
    for (const Expr& e : {loop->begin[0], loop->end[0]})
      for_each_variable(e, [&](const VariablePtr& v) { uneven |= !is_host(v->kind); });
  });
  return uneven;
}

void Analysis::plan_loads(Roles& roles) const {
  roles.one_loader = true;
  for (RingPlan& ring : roles.rings) {
    if (ring.to_transpose && ring.by_rows) roles.one_loader = false;
    if (!ring.to_transpose) ring.by_rows = target_.copy_engine && !ring.told && !roles.has_transposed(ring);
  }
  for (const RingCandidate& c : tiles_.candidates) {
    RingPlan& ring = roles.rings[static_cast<std::size_t>(roles.ring_of(c.tile.get()))];
    if (roles.is_transposed(c.tile.get()) || ring.by_transposer) continue;
    for (const Stmt& s : c.fills) ring.by_rows &= plan_pieces(s).has_value();
    for (const Stmt& s : c.fills) {
      const auto* copy = as<Copy>(s);
      const auto plan = copy ? plan_copy(*copy, is_operand(c.tile)) : Reason{};
      if (plan && target_.copy_engine) roles.copies.emplace(s.get(), *plan);
      roles.one_loader &= plan && target_.copy_engine && !plan->is_clipped;
      if (target_.copy_engine && !ring.by_rows)
        note_load(roles.notes, s, ring, plan ? plan->clipped : plan.reason());
    }
  }
  // Tiles of its own, which it fills by threads.
  for_each_stmt(roles.producer, [&](const Stmt& s) {
    const auto* declared = as<Declare>(s);
    if (declared && roles.ring_of(declared->tile.get()) < 0) roles.one_loader = false;
  });
}

// A block may end before its first load, for want of work or because an assertion fails. A loop with loads
// may be left where no tile is between its load and its last use, since both roles count the tiles.
Reason Analysis::leaves_early() const {
  bool loads = false;
  Stmt bad;
  const std::function<void(const Body&, bool, const Body*)> walk = [&](const Body& body, bool top,
                                                                       const Body* left) {
    for (std::size_t i = 0; i < body.size(); ++i) {
      const Stmt& s = body[i];
      loads |= is_fill(s);
      const auto* loop = as<For>(s);
      if (loop && loop->kind == LoopKind::parallel) continue;
      bool leaves = (as<Exit>(s) || as<Assert>(s)) && (loads || !top);
      leaves |= as<Break>(s) && left && has_fill(*left) && (left != &body || is_between(body, i));
      if (leaves && !bad) bad = s;
      for_each_body(s, [&](const Body& inner) { walk(inner, false, as<If>(s) ? left : &inner); });
    }
  };
  walk(grid_.body, true, nullptr);
  return bad ? reason_of_leaving(bad) : Reason{};
}

bool Analysis::is_fill(const Stmt& s) const {
  return std::any_of(tiles_.candidates.begin(), tiles_.candidates.end(), [&](const RingCandidate& c) {
    return std::find(c.fills.begin(), c.fills.end(), s) != c.fills.end();
  });
}

bool Analysis::has_fill(const Body& body) const {
  bool found = false;
  for_each_stmt(body, [&](const Stmt& s) { found |= is_fill(s); });
  return found;
}

// Whether a tile of the body is brought before the statement, and used behind it.
bool Analysis::is_between(const Body& body, std::size_t at) const {
  return std::any_of(tiles_.candidates.begin(), tiles_.candidates.end(), [&](const RingCandidate& c) {
    const auto [first, last] = uses_of(body, c.tile);
    return c.scope == &body && first < at && at < last;
  });
}

Planned<Body> Analysis::producer_of(const std::vector<RingCandidate>& candidates) const {
  const std::unordered_set<const StmtNode*> fills = fills_of(candidates);
  SliceRules rules;
  rules.wanted = [&](const Stmt& s) { return fills.contains(s.get()); };
  rules.given = [&](const Buffer& b) { return !written_.contains(&b); };
  rules.told = [&](const Buffer& b) { return is_among(told_, &b); };
  rules.refused = [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    const bool groups = loop && (loop->kind == LoopKind::warps || loop->kind == LoopKind::warp_groups);
    if (as<If>(s) || as<While>(s) || (loop && !groups && loop->kind != LoopKind::parallel)) return false;
    const Effects e = all_effects(s);
    return groups || touches_fragments(s) || (e.reports && !as<Assert>(s)) || e.writes_tensors();
  };
  rules.left_out = [](const Stmt&) { return false; };
  return slice(grid_.body, rules);
}

// The consumers report what fails.
Body with_exits(const Body& producer) {
  return map_body(producer, [](const Stmt& s) -> Body {
    const auto* n = as<Assert>(s);
    if (!n) return {s};
    return {statement(Exit{make(Op::logical_not, boolean, {n->condition}, s->at)}, s->at)};
  });
}

Planned<Body> Analysis::consumer_of(const std::vector<RingCandidate>& candidates) const {
  const std::unordered_set<const StmtNode*> fills = fills_of(candidates);
  SliceRules rules;
  rules.wanted = [&](const Stmt& s) {
    const Effects e = all_effects(s);
    const bool tells =
        std::any_of(told_.begin(), told_.end(), [&](const BufferPtr& tile) { return e.writes(tile); });
    return touches_fragments(s) || e.writes_tensors() || e.reports || as<Gemm>(s) || tells;
  };
  rules.given = [](const Buffer&) { return true; };
  rules.refused = [](const Stmt&) { return false; };
  rules.left_out = [&](const Stmt& s) { return fills.contains(s.get()); };
  return slice(grid_.body, rules);
}

// Pieces by threads are not awaited where boxes are. What the producer waits for has a ring of its own: the
// others of the ring may need it.
void Analysis::make_rings(Roles& roles, const std::vector<RingCandidate>& candidates) const {
  const auto candidate_of = [&](const BufferPtr& tile) {
    return std::find_if(candidates.begin(), candidates.end(),
                        [&](const RingCandidate& own) { return own.tile == tile; });
  };
  std::vector<RingTile> tiles;
  const Effects loads = all_effects(roles.producer);
  const std::function<void(const Body&)> walk = [&](const Body& body) {
    for (const Stmt& s : body) {
      for_each_body(s, walk);
      const auto* declared = as<Declare>(s);
      const auto c = declared ? candidate_of(declared->tile) : candidates.end();
      if (c == candidates.end()) continue;
      for (const Stmt& fill : c->fills) roles.fills.emplace(fill.get(), c->tile);
      const auto [first, last] = uses_of(body, c->tile);
      tiles.push_back({c->tile, &body, first, last, loads.reads(c->tile) && comes_late(*c),
                       comes_in_pieces(*c), comes_in_boxes(*c)});
    }
  };
  walk(roles.consumer);
  for (const auto& shared : shared_rings(tiles)) {
    const RingCandidate& c = *candidate_of(shared.front()->tile);
    RingPlan& ring = roles.rings.emplace_back();
    for (const RingTile* x : shared) ring.tiles.push_back(x->tile);
    ring.in_loop = c.pipelined, ring.asked = c.stages, ring.loop_at = c.loop_at;
    ring.is_awaited = shared.front()->awaited;
  }
  for (const BufferPtr& tile : told_) {
    RingPlan& ring = roles.rings.emplace_back();
    ring.tiles = {tile}, ring.told = true;
  }
}

Planned<Roles> Analysis::run() {
  tiles_ = filled_tiles(grid_.body);
  find_told();
  // What the producer cannot compute stays with the consumers.
  std::erase_if(tiles_.candidates, [&](const RingCandidate& c) {
    const auto alone = producer_of({c});
    if (!alone) tiles_.refuse(c.tile, c.fills[0], alone.reason());
    return !alone;
  });
  if (const auto reason = drop_for_own_copies()) return *reason;
  const bool useful = std::any_of(tiles_.candidates.begin(), tiles_.candidates.end(),
                                  [&](const RingCandidate& c) { return is_worth_a_producer(c); });
  if (!useful) return reason_of_loops(grid_, target_, tiles_.refused);
  if (const Reason reason = reason_of_layouts(grid_, target_); !reason.why.empty()) return reason;
  if (const Reason reason = leaves_early(); !reason.why.empty()) return reason;
  Roles roles;
  roles.consumers = grid_.hints.threads;
  auto producer = producer_of(tiles_.candidates), consumer = consumer_of(tiles_.candidates);
  if (!producer) return producer.reason();
  if (!consumer) return consumer.reason();
  roles.producer = with_exits(*producer);
  roles.consumer = std::move(*consumer);
  make_rings(roles, tiles_.candidates);
  for (const RingCandidate& c : tiles_.candidates) {
    if (!roles.fills.contains(c.fills[0].get()))
      return Reason{fmt::format("only loads read tile {}", named(*c.tile)),
                    "read the tensor where the tile is read", c.fills[0]->at};
  }
  roles.dynamic_tiles = is_uneven();
  if (target_.copy_engine) transpose_loads(roles, grid_.hints, target_);
  plan_loads(roles);
  roles.producer = loads_first(roles);
  note_consumers(roles, grid_, tiles_.refused);
  note_warp_groups(roles, grid_, target_);
  return roles;
}

// Tensors that a block writes, and those that it may read under another name when it has: behind a write, or
// in a loop with one. What comes to a tile is read when the tile is: only then it has been waited for.
Tensors written_before(const Body& block, const Kernel& kernel) {
  Tensors written, result;
  std::unordered_map<const Buffer*, Tensors> brought;  // to tiles that have not been read since
  for (const Stmt& s : block) {
    const Effects all = all_effects(s);
    Tensors read, used, filled;
    for (const Region& r : all.regions) {
      const Buffer* const buffer = r.view->buffer.get();
      if (is_tensor_write(r)) written.insert(buffer);
      if (is_write(r.touch)) (buffer->is_tile() ? filled : result).insert(buffer);
      if (!is_read(r.touch)) continue;
      if (!buffer->is_tile()) read.insert(buffer);
      if (const auto own = brought.extract(buffer)) used.insert(own.mapped().begin(), own.mapped().end());
    }
    const Tensors named = by_any_name(written, kernel);
    for (const Tensors* tensors : {&read, &used})
      for (const Buffer* tensor : *tensors)
        if (named.contains(tensor)) result.insert(tensor);
    for (const Buffer* tile : filled) brought[tile].insert(read.begin(), read.end());
  }
  return result;
}

}  // namespace

Planned<Roles> specialize_roles(const Kernel& kernel, const Grid& grid, const CudaTarget& target,
                                StoreForms& forms) {
  if (!target.has_wgmma()) return Reason{};
  if (grid.hints.threads % 128 != 0) return reason_of_loops(grid, target, {});
  if (grid.hints.threads + producer_threads > most_threads)
    return Reason{fmt::format("a producer has {} threads, which with .threads = {} are more than {}",
                              producer_threads, grid.hints.threads, most_threads),
                  "use .threads = 512 or fewer", grid.at};
  // Both roles advance their rings in the first part of a branch only.
  const auto may_use_rings = [](const Stmt& s) {
    const auto* declared = as<Declare>(s);
    return as<Gemm>(s) || (declared && declared->tile->space == Space::shared);
  };
  const Tensors written = written_before(grid.body, kernel);
  const auto is_given = [&](const Buffer& tensor) { return !written.contains(&tensor); };
  Grid plain = grid;
  plain.body = with_chosen_steps(with_one_part(grid.body, may_use_rings), is_given, forms);
  return Analysis(plain, written, target).run();
}

}  // namespace tegula::passes

#include "passes/cuda/specialize_roles.hpp"

#include <algorithm>
#include <unordered_set>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/pair_blocks.hpp"
#include "passes/cuda/plan_rows.hpp"
#include "passes/cuda/plan_stores.hpp"
#include "passes/cuda/ring_depths.hpp"
#include "passes/cuda/rows_of_warps.hpp"
#include "passes/slice.hpp"

namespace tegula::passes {

using namespace ir;

int Roles::ring_of(const Buffer* tile) const {
  for (std::size_t r = 0; r < rings.size(); ++r) {
    for (const BufferPtr& own : rings[r].tiles) {
      if (own.get() == tile) return static_cast<int>(r);
    }
  }
  return -1;
}

bool Roles::is_brought_by_threads(const RingPlan& ring) const {
  return !ring.by_rows && std::any_of(fills.begin(), fills.end(), [&](const auto& fill) {
    const auto plan = copies.find(fill.first);
    return std::find(ring.tiles.begin(), ring.tiles.end(), fill.second) != ring.tiles.end() &&
           (plan == copies.end() || plan->second.is_clipped);
  });
}

namespace {

constexpr int most_threads = 1024;  // of a block

bool touches_fragments(const Stmt& s) {
  if (const auto* declared = as<Declare>(s)) return declared->tile->space == Space::fragment;
  for (const Region& r : all_effects(s).regions) {
    if (r.view->buffer->space == Space::fragment) return true;
  }
  return false;
}

bool writes_tensors(const Effects& e) {
  return std::any_of(e.regions.begin(), e.regions.end(),
                     [](const Region& r) { return is_write(r.touch) && !r.view->is_tile(); });
}

// A tile that may become part of a ring.
struct Candidate {
  BufferPtr tile;
  std::vector<Stmt> fills;  // of all its rows, each once
  const Body* scope = nullptr;
  int stages = 0;          // asked for by the loop; 0: the compiler chooses
  bool pipelined = false;  // the scope is the body of a pipelined loop
};

class Analysis {
 public:
  Analysis(const Grid& grid, const CudaTarget& target) : grid_(grid), target_(target) {}
  std::optional<Roles> run();

 private:
  void collect(const Body& body, const For* pipelined);
  void add(const BufferPtr& tile, const Stmt& fill, const Body& scope, const For* pipelined);
  void drop_filled_twice();
  bool feeds_wgmma(const BufferPtr& tile) const;
  bool is_operand(const BufferPtr& tile) const;
  void plan_loads(Roles& roles) const;
  bool is_uneven() const;
  bool leaves_early() const;
  std::optional<Body> producer_of(const std::vector<Candidate>& candidates) const;
  std::optional<Body> consumer_of(const std::vector<Candidate>& candidates) const;
  void make_rings(Roles& roles, const std::vector<Candidate>& candidates) const;
  bool choose_depths(Roles& roles) const;

  const Grid& grid_;
  const CudaTarget& target_;
  std::vector<Candidate> candidates_;
  std::unordered_set<const Buffer*> written_;  // tensors
};

void Analysis::add(const BufferPtr& tile, const Stmt& fill, const Body& scope, const For* pipelined) {
  for (Candidate& c : candidates_) {
    if (c.tile == tile && c.scope == &scope) return c.fills.push_back(fill);
  }
  candidates_.push_back({tile, {fill}, &scope, pipelined ? pipelined->stages : 1, pipelined != nullptr});
}

void Analysis::collect(const Body& body, const For* pipelined) {
  std::vector<BufferPtr> declared;
  for (const Stmt& s : body) {
    if (const auto* n = as<Declare>(s); n && n->tile->space == Space::shared) declared.push_back(n->tile);
    const auto* loop = as<For>(s);
    const bool fills = as<Copy>(s) || (loop && loop->kind == LoopKind::parallel);
    if (fills && (pipelined || as<Copy>(s)) && !touches_fragments(s)) {
      const Effects e = all_effects(s);
      std::vector<BufferPtr> targets;
      for (const Region& r : e.regions) {
        if (is_write(r.touch)) targets.push_back(r.view->buffer);
      }
      const bool own = targets.size() == 1 && !e.leaves && !e.reports && e.assigned.empty() &&
                       std::find(declared.begin(), declared.end(), targets[0]) != declared.end();
      if (own) add(targets[0], s, body, pipelined);
    }
    if (loop && loop->kind == LoopKind::parallel) continue;
    for_each_body(s, [&](const Body& inner) {
      collect(inner, loop && loop->kind == LoopKind::pipelined ? loop : nullptr);
    });
  }
}

// Whether the rows that the copies fill make up the tile.
bool fill_all(const Candidate& c) {
  if (as<For>(c.fills[0])) return c.fills.size() == 1;
  std::vector<TileRows> parts;
  for (const Stmt& s : c.fills) {
    const auto* copy = as<Copy>(s);
    const auto rows = copy ? rows_of(copy->to) : std::nullopt;
    if (!rows) return false;
    parts.push_back(*rows);
  }
  std::sort(parts.begin(), parts.end(),
            [](const TileRows& a, const TileRows& b) { return a.first < b.first; });
  std::int64_t next = 0;
  for (const TileRows& part : parts) {
    if (part.first != next) return false;
    next += part.count;
  }
  const std::int64_t rows = c.tile->rank() > 1 ? c.tile->elements() / c.tile->extent(c.tile->rank() - 1) : 1;
  return next == rows;
}

void Analysis::drop_filled_twice() {
  std::unordered_map<const Buffer*, int> writers;
  const std::function<void(const Body&)> count = [&](const Body& body) {
    for (const Stmt& s : body) {
      const auto* loop = as<For>(s);
      const bool whole = loop && loop->kind == LoopKind::parallel;
      std::unordered_set<const Buffer*> own;
      for (const Region& r : (whole ? all_effects(s) : effects(s)).regions) {
        if (is_write(r.touch)) own.insert(r.view->buffer.get());
      }
      for (const Buffer* buffer : own) ++writers[buffer];
      if (!whole) for_each_body(s, count);
    }
  };
  count(grid_.body);
  std::erase_if(candidates_, [&](const Candidate& c) {
    return writers[c.tile.get()] != static_cast<int>(c.fills.size()) || !fill_all(c);
  });
}

bool Analysis::feeds_wgmma(const BufferPtr& tile) const {
  bool found = false;
  for_each_stmt(grid_.body, [&](const Stmt& s) {
    const auto* gemm = as<Gemm>(s);
    if (!gemm || (gemm->a.buffer != tile && gemm->b.buffer != tile)) return;
    found |= plan_gemm(*gemm, grid_.hints.threads, target_).instruction == GemmInstruction::wgmma;
  });
  return found;
}

bool Analysis::is_operand(const BufferPtr& tile) const {
  bool found = false;
  for_each_stmt(grid_.body, [&](const Stmt& s) {
    const auto* gemm = as<Gemm>(s);
    found |= gemm && (gemm->a.buffer == tile || gemm->b.buffer == tile);
  });
  return found && has_tensor_cores(tile->type);
}

// Whether the steps of some pipelined loop differ from block to block.
bool Analysis::is_uneven() const {
  bool uneven = grid_.hints.order == GridOrder::heavy_first;
  for_each_stmt(grid_.body, [&](const Stmt& s) {
    // Who waits for turns ends later, and the blocks behind wait for him.
    if (const auto* n = as<Accumulate>(s)) uneven |= n->turn.has_value();
    const auto* loop = as<For>(s);
    if (!loop || loop->kind != LoopKind::pipelined) return;
    for (const Expr& e : {loop->begin[0], loop->end[0]})
      for_each_variable(e, [&](const VariablePtr& v) { uneven |= !is_host(v->kind); });
  });
  return uneven;
}

void Analysis::plan_loads(Roles& roles) const {
  roles.one_loader = true;
  for (RingPlan& ring : roles.rings) ring.by_rows = target_.copy_engine;
  for (const Candidate& c : candidates_) {
    RingPlan& ring = roles.rings[static_cast<std::size_t>(roles.ring_of(c.tile.get()))];
    for (const Stmt& s : c.fills) ring.by_rows &= plan_rows(s).has_value();
    for (const Stmt& s : c.fills) {
      const auto* copy = as<Copy>(s);
      const auto plan = copy ? plan_copy(*copy, is_operand(c.tile)) : std::nullopt;
      if (plan && target_.copy_engine) roles.copies.emplace(s.get(), *plan);
      roles.one_loader &= plan && target_.copy_engine && !plan->is_clipped;
    }
  }
  // Tiles of its own, which it fills by threads.
  for_each_stmt(roles.producer, [&](const Stmt& s) {
    const auto* declared = as<Declare>(s);
    if (declared && roles.ring_of(declared->tile.get()) < 0) roles.one_loader = false;
  });
}

// A block may end before its first load, for want of work or because an assertion fails; a loop with loads
// may not be left early, since both roles count their turns.
bool Analysis::leaves_early() const {
  bool loads = false, bad = false;
  const std::function<void(const Body&, bool)> walk = [&](const Body& body, bool top) {
    for (const Stmt& s : body) {
      for (const Candidate& c : candidates_)
        loads |= std::find(c.fills.begin(), c.fills.end(), s) != c.fills.end();
      const auto* loop = as<For>(s);
      if (loop && loop->kind == LoopKind::parallel) continue;
      if (as<Exit>(s) || as<Assert>(s)) bad |= loads || !top;
      if (as<Break>(s) || as<While>(s)) {
        for (const Candidate& c : candidates_) bad |= c.scope == &body || as<While>(s);
      }
      for_each_body(s, [&](const Body& inner) { walk(inner, false); });
    }
  };
  walk(grid_.body, true);
  return bad;
}

std::optional<Body> Analysis::producer_of(const std::vector<Candidate>& candidates) const {
  std::unordered_set<const StmtNode*> fills;
  for (const Candidate& c : candidates)
    for (const Stmt& s : c.fills) fills.insert(s.get());
  SliceRules rules;
  rules.wanted = [&](const Stmt& s) { return fills.contains(s.get()); };
  rules.given = [&](const Buffer& b) { return !written_.contains(&b); };
  rules.refused = [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    const bool groups = loop && (loop->kind == LoopKind::warps || loop->kind == LoopKind::warp_groups);
    if (as<If>(s) || as<While>(s) || (loop && !groups && loop->kind != LoopKind::parallel)) return false;
    const Effects e = all_effects(s);
    return groups || touches_fragments(s) || (e.reports && !as<Assert>(s)) || writes_tensors(e);
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

std::optional<Body> Analysis::consumer_of(const std::vector<Candidate>& candidates) const {
  std::unordered_set<const StmtNode*> fills;
  for (const Candidate& c : candidates)
    for (const Stmt& s : c.fills) fills.insert(s.get());
  SliceRules rules;
  rules.wanted = [&](const Stmt& s) {
    const Effects e = all_effects(s);
    return touches_fragments(s) || writes_tensors(e) || e.reports || as<Gemm>(s);
  };
  rules.given = [](const Buffer&) { return true; };
  rules.refused = [](const Stmt&) { return false; };
  rules.left_out = [&](const Stmt& s) { return fills.contains(s.get()); };
  return slice(grid_.body, rules);
}

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

// Tiles of one scope that the consumers use at the same places share a ring.
void Analysis::make_rings(Roles& roles, const std::vector<Candidate>& candidates) const {
  struct Use {
    const Body* scope;
    std::pair<std::size_t, std::size_t> at;
    bool operator==(const Use&) const = default;
  };
  std::vector<Use> uses;
  const std::function<void(const Body&)> walk = [&](const Body& body) {
    for (const Stmt& s : body) {
      for_each_body(s, walk);
      const auto* declared = as<Declare>(s);
      if (!declared) continue;
      const auto c = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate& own) { return own.tile == declared->tile; });
      if (c == candidates.end()) continue;
      const Use use{&body, uses_of(body, c->tile)};
      const auto known = std::find(uses.begin(), uses.end(), use);
      for (const Stmt& fill : c->fills) roles.fills.emplace(fill.get(), c->tile);
      if (known != uses.end()) {
        roles.rings[static_cast<std::size_t>(known - uses.begin())].tiles.push_back(c->tile);
        continue;
      }
      uses.push_back(use);
      roles.rings.push_back({{c->tile}, 0});
    }
  };
  walk(roles.consumer);
}

bool Analysis::choose_depths(Roles& roles) const {
  std::vector<int> asked;
  for (RingPlan& ring : roles.rings) {
    const auto c = std::find_if(candidates_.begin(), candidates_.end(),
                                [&](const Candidate& own) { return own.tile == ring.tiles[0]; });
    ring.in_loop = c->pipelined;
    asked.push_back(c->pipelined ? (c->stages > 0 ? c->stages : 4) : 1);
  }
  if (!passes::choose_depths(roles, asked, grid_.hints, target_)) return false;
  for (const Candidate& c : candidates_)
    roles.crowded |=
        c.pipelined && roles.rings[static_cast<std::size_t>(roles.ring_of(c.tile.get()))].depth < c.stages;
  return true;
}

std::optional<Roles> Analysis::run() {
  for (const Region& r : all_effects(grid_.body).regions) {
    if (is_write(r.touch) && !r.view->is_tile()) written_.insert(r.view->buffer.get());
  }
  collect(grid_.body, nullptr);
  drop_filled_twice();
  // What the producer cannot compute stays with the consumers.
  std::erase_if(candidates_, [&](const Candidate& c) { return !producer_of({c}); });
  const bool useful = std::any_of(candidates_.begin(), candidates_.end(),
                                  [&](const Candidate& c) { return c.pipelined && feeds_wgmma(c.tile); });
  if (!useful || leaves_early()) return std::nullopt;
  Roles roles;
  roles.consumers = grid_.hints.threads;
  auto producer = producer_of(candidates_), consumer = consumer_of(candidates_);
  if (!producer || !consumer) return std::nullopt;
  roles.producer = with_exits(*producer);
  roles.consumer = std::move(*consumer);
  make_rings(roles, candidates_);
  for (const Candidate& c : candidates_) {
    if (!roles.fills.contains(c.fills[0].get())) return std::nullopt;
  }
  for_each_stmt(roles.consumer, [&](const Stmt& s) {
    const auto* copy = as<Copy>(s);
    const auto* sum = as<Accumulate>(s);
    const View* from = sum                                                   ? &sum->tile
                       : copy && copy->from.buffer->space == Space::fragment ? &copy->from
                                                                             : nullptr;
    if (from) roles.store_bytes = std::max(roles.store_bytes, staging_bytes(*from));
  });
  roles.takes_turns = is_uneven();
  plan_loads(roles);
  if (!choose_depths(roles)) return std::nullopt;
  if (target_.pairs) pair_blocks(grid_, roles);
  return roles;
}

}  // namespace

std::int64_t slot_alignment(const Buffer& tile) { return tile.rank() == 1 ? 128 : 1024; }

std::int64_t slot_bytes(const Buffer& tile) {
  const std::int64_t unit = slot_alignment(tile);
  return (tile.elements() * tile.type.bytes() + unit - 1) / unit * unit;
}

std::optional<Roles> specialize_roles(const Grid& grid, const CudaTarget& target) {
  const int threads = grid.hints.threads;
  if (!target.has_wgmma() || threads % 128 != 0 || threads + producer_threads > most_threads)
    return std::nullopt;
  auto roles = Analysis(grid, target).run();
  if (!roles) return std::nullopt;
  roles->consumer = rows_of_warps(roles->consumer, roles->consumers, target);
  return roles;
}

}  // namespace tegula::passes

#include "passes/cuda/copy_rings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/by_any_name.hpp"
#include "passes/cuda/copy_ring_depths.hpp"
#include "passes/cuda/copy_ring_events.hpp"
#include "passes/cuda/loops_back.hpp"
#include "passes/cuda/plan_copies.hpp"
#include "passes/cuda/plan_rows.hpp"
#include "passes/cuda/ring_candidates.hpp"
#include "passes/cuda/run_copies.hpp"
#include "passes/cuda/specialize_roles.hpp"
#include "passes/cuda/steps_apart.hpp"
#include "passes/plain_control.hpp"
#include "passes/slice.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr std::size_t most_tiles_of_loops_back = 6;

Tensors written_by(const Body& body) {
  Tensors result;
  const Effects all = all_effects(body);
  for (const Region& r : all.regions)
    if (is_tensor_write(r)) result.insert(r.view->buffer.get());
  return result;
}

// What computes the elements that it stores is no copy.
bool computes(const Stmt& s) { return as<For>(s) && !plan_rows(s) && plan_rows(s).reason().why.empty(); }

// What is around a loop.
struct Around {
  bool loops = false;  // it may be entered more than once before all threads meet
  BesideSlots bytes;
};

bool is_of_groups(const For& loop) {
  return loop.kind == LoopKind::warps || loop.kind == LoopKind::warp_groups;
}

bool is_of_elements(const Stmt& s) {
  const auto* loop = as<For>(s);
  return loop && loop->kind == LoopKind::parallel;
}

// Statements that write the tile; a loop over elements is one.
int writers_of(const BufferPtr& tile, const Body& body) {
  int result = 0;
  for (const Stmt& s : body) {
    result += (is_of_elements(s) ? all_effects(s) : effects(s)).writes(tile);
    if (!is_of_elements(s)) for_each_body(s, [&](const Body& inner) { result += writers_of(tile, inner); });
  }
  return result;
}

// Whether one copy fills the tile, in any order.
bool is_filled_at_once(const RingCandidate& c) {
  const auto* copy = as<Copy>(c.fills[0]);
  if (!copy || c.fills.size() > 1) return false;
  std::int64_t elements = 1;
  for (int d = 0; d < copy->to.rank(); ++d) elements *= copy->to.extent(d);
  return elements == c.tile->elements();
}

bool reads_tensors(const Stmt& s) {
  const Effects e = all_effects(s);
  return std::any_of(e.regions.begin(), e.regions.end(),
                     [](const Region& r) { return is_read(r.touch) && !r.view->is_tile(); });
}

class RingSearch {
 public:
  RingSearch(const Kernel& kernel, const Grid& grid, const CudaTarget& target)
      : kernel_(kernel), grid_(grid), target_(target) {}

  CopyRings run() {
    walk(grid_.body, {});
    result_.anywhere = tiles_beside_runs(grid_.body, result_.runs);
    result_.anywhere.insert(result_.runs.begin(), result_.runs.end());
    return std::move(result_);
  }

 private:
  void walk(const Body& body, Around around);
  bool fit(const For& loop, const BesideSlots& around, std::vector<RingCandidate>& tiles, int& depth) const;
  std::int64_t plan(const For& loop, const Stmt& s, const Around& around, const Stmt& before);
  void take(CopyRing& ring, const std::vector<RingCandidate>& tiles);
  bool go_back(const For& loop, const Stmt& s, const std::vector<RingCandidate>& tiles, const Stmt& before);
  struct TilesAgain {
    std::vector<RingCandidate> tiles;
    Body copies;
  };
  std::optional<TilesAgain> left_by(const CopyRing& forward, const For& loop,
                                    const std::vector<RingCandidate>& tiles) const;
  void collect(const Body& body, std::vector<RingCandidate>& found);
  Reason reason_of_loop(const For& loop) const;
  Reason reason_of(const RingCandidate& c, const For& loop) const;
  bool comes_as_run(const RingCandidate& c) const;
  std::int64_t bytes_of_slot(const RingCandidate& c) const {
    return comes_as_run(c) ? slot_bytes_of_run(*c.tile) : slot_bytes(*c.tile);
  }
  Planned<Body> bring(const For& loop, const std::vector<RingCandidate>& candidates) const;
  std::vector<RingCandidate> tiles_of(const For& loop);
  std::int64_t tile_bytes(const Body& body, bool nested) const;
  void note_stages(const For& loop, const Loc& at, const std::vector<RingCandidate>& tiles, int depth);
  void note_refused(const RingCandidate& c, const Reason& reason);

  Tensors written_before_or_in(const For& loop, const Stmt& s) const;

  const Kernel& kernel_;
  const Grid& grid_;
  const CudaTarget& target_;
  Tensors written_;   // that the steps of the loop at hand may not read before their time
  RingLoop brought_;  // the last loop that has a ring of its own
  CopyRings result_;
};

// Bytes of the shared tiles that are in no ring.
std::int64_t RingSearch::tile_bytes(const Body& body, bool nested) const {
  std::int64_t bytes = 0;
  for (const Stmt& s : body) {
    const auto* n = as<Declare>(s);
    if (n && n->tile->space == Space::shared && !result_.tiles.contains(n->tile.get()))
      bytes += slot_bytes(*n->tile);
    if (nested) for_each_body(s, [&](const Body& inner) { bytes += tile_bytes(inner, true); });
  }
  return bytes;
}

void RingSearch::walk(const Body& body, Around around) {
  around.bytes.tiles += tile_bytes(body, false);
  Stmt before;  // the last loop that has a ring
  for (const Stmt& s : body) {
    const auto* loop = as<For>(s);
    const auto* branch = as<If>(s);
    if (loop && (loop->kind == LoopKind::parallel || is_of_groups(*loop))) continue;
    // Warps that leave such a branch out would not come to its barriers.
    if (branch && !branch->of_rows.empty()) continue;
    Around inside = around;
    if (loop && loop->kind == LoopKind::pipelined) inside.bytes.slots += plan(*loop, s, around, before);
    // All threads meet in each step of a loop that has a ring.
    if (loop || as<While>(s)) inside.loops = !result_.loops.contains(s.get());
    const std::size_t known = result_.loops.size();
    for_each_body(s, [&](const Body& inner) { walk(inner, inside); });
    if (result_.loops.contains(s.get()))
      before = s;
    else if (result_.loops.size() > known)
      before = nullptr;
  }
}

// Tiles of the body and of its branches that copies or loops over elements fill.
void RingSearch::collect(const Body& body, std::vector<RingCandidate>& found) {
  const std::size_t first = found.size();
  for (const Stmt& s : body) {
    if (const auto* n = as<Declare>(s); n && n->tile->space == Space::shared)
      found.push_back({n->tile, {}, &body});
    if (const auto* branch = as<If>(s); branch && branch->of_rows.empty()) collect(branch->then, found);
    const auto* loop = as<For>(s);
    if (!as<Copy>(s) && !(loop && loop->kind == LoopKind::parallel)) continue;
    const Effects e = all_effects(s);
    for (std::size_t i = first; i < found.size(); ++i)
      if (e.writes(found[i].tile)) found[i].fills.push_back(s);
  }
}

// What would leave a block while copies are on their way to its memory.
Reason RingSearch::reason_of_loop(const For& loop) const {
  Reason result;
  const std::function<void(const Body&)> look = [&](const Body& body) {
    for (const Stmt& s : body) {
      const auto* inner = as<For>(s);
      if (inner && (inner->kind == LoopKind::parallel || is_of_groups(*inner))) continue;
      if (as<Exit>(s) || as<Assert>(s))
        result = {fmt::format("{} may end the block in the middle of the loop",
                              as<Exit>(s) ? "`exit_if`" : "an assertion"),
                  "move it before the loop", s->at};
      for_each_body(s, look);
    }
  };
  look(loop.body);
  return result;
}

// What one step needs to fill the tiles, without what computes with them.
Planned<Body> RingSearch::bring(const For& loop, const std::vector<RingCandidate>& candidates) const {
  const std::unordered_set<const StmtNode*> fills = fills_of(candidates);
  // Where a step is left is known too late; what it would not have used does no harm.
  const Body staying = map_body(loop.body, [](const Stmt& s) { return as<Break>(s) ? Body{} : Body{s}; });
  SliceRules rules;
  rules.wanted = [&](const Stmt& s) { return fills.contains(s.get()); };
  rules.given = [&](const Buffer& b) { return !written_.contains(&b); };
  rules.refused = [&](const Stmt& s) {
    if (fills.contains(s.get()) || as<Declare>(s)) return false;
    return !as<If>(s) && !as<Let>(s) && !as<Load>(s);
  };
  rules.left_out = [](const Stmt&) { return false; };
  const auto all = slice(staying, rules);
  if (!all) return all;
  return map_body(*all, [](const Stmt& s) { return as<Declare>(s) ? Body{} : Body{s}; });
}

// Of a block that is spread, each CTA would have a run of its own.
bool RingSearch::comes_as_run(const RingCandidate& c) const {
  const auto* copy = as<Copy>(c.fills[0]);
  return grid_.hints.cluster == 1 && c.fills.size() == 1 && copy && is_run(*copy) &&
         is_read_by_elements(grid_.body, *c.tile, {c.fills[0].get()});
}

Reason RingSearch::reason_of(const RingCandidate& c, const For& loop) const {
  for (const Stmt& s : c.fills) {
    if (Reason reason = comes_as_run(c) ? Reason{} : reason_to_wait(s); !reason.why.empty()) return reason;
    const Effects e = all_effects(s);
    for (const Region& r : e.regions)
      if (is_write(r.touch) && r.view->buffer != c.tile)
        return {"its statement writes other memory too", "write it alone"};
  }
  if (writers_of(c.tile, grid_.body) != static_cast<int>(c.fills.size()))
    return {"other statements write it too", "use another tile for the result"};
  if (c.fills.size() > most_fills_of_a_tile)
    return {fmt::format("{} statements fill it", c.fills.size()),
            fmt::format("fill it by {} or fewer", most_fills_of_a_tile)};
  if (!is_filled_at_once(c) && !fill_all(c))
    return {"it is not filled by whole rows, each once", "fill all of its rows, each once"};
  const auto alone = bring(loop, {c});
  return alone ? Reason{} : alone.reason();
}

void RingSearch::note_refused(const RingCandidate& c, const Reason& reason) {
  if (reason.why.empty()) return;
  add(result_.notes,
      {NoteKind::by_threads, reason.at.line() == 0 ? c.fills[0]->at : reason.at,
       fmt::format("tile {} is not loaded ahead: {}", named(*c.tile), reason.why), reason.remedy});
}

std::vector<RingCandidate> RingSearch::tiles_of(const For& loop) {
  std::vector<RingCandidate> found, result;
  collect(loop.body, found);
  for (const RingCandidate& c : found) {
    if (!std::any_of(c.fills.begin(), c.fills.end(), reads_tensors)) continue;
    if (std::all_of(c.fills.begin(), c.fills.end(), computes)) continue;
    Reason reason = reason_of_loop(loop);
    if (reason.why.empty()) reason = reason_of(c, loop);
    if (reason.why.empty()) result.push_back(c);
    note_refused(c, reason);
  }
  return result;
}

void RingSearch::note_stages(const For& loop, const Loc& at, const std::vector<RingCandidate>& tiles,
                             int depth) {
  const int wanted = wanted_slots(loop);
  const bool few_steps = is_constant(loop.begin[0]) && is_constant(loop.end[0]) &&
                         constant_value(loop.end[0]) - constant_value(loop.begin[0]) <= depth;
  if (depth >= wanted || few_steps) return;
  const std::string asked = loop.stages > 0 ? fmt::format(".stages = {}", wanted) : "two stages";
  if (tiles.empty()) {
    if (loop.stages > 0)
      add(result_.notes,
          {NoteKind::stages, at,
           fmt::format("{} became 1: the loop loads no tile that can be loaded ahead", asked),
           "declare Shared tiles in its body and copy them from tensors, or leave out .stages"});
    return;
  }
  std::string list;
  for (const RingCandidate& c : tiles)
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", named(*c.tile), bytes_of_slot(c));
  add(result_.notes,
      {NoteKind::stages, at,
       fmt::format("{} became {}: a stage takes {} bytes of shared memory", asked, depth, list),
       loop.stages > 0 ? fmt::format("use smaller tiles, or ask for .stages = {}", depth)
                       : std::string("use smaller tiles")});
}

// Decides the slots, and leaves of the tiles those that have them: where not all of them have as many as the
// loop asks for, the largest stays where it is used. True if it was for want of room that some stay.
bool RingSearch::fit(const For& loop, const BesideSlots& around, std::vector<RingCandidate>& tiles,
                     int& depth) const {
  for (bool missing = false;; missing = true) {
    std::int64_t bytes = 0;
    for (const RingCandidate& c : tiles) bytes += bytes_of_slot(c);
    BesideSlots beside = around;
    beside.tiles += tile_bytes(loop.body, true) - bytes;
    depth = tiles.empty() ? 1 : copy_ring_depth(loop, bytes, beside, grid_, target_);
    if (tiles.empty() || depth >= 2) return missing;
    if (loop.stages == 0) {
      tiles.clear();
      return copy_ring_room(bytes, beside, grid_, target_) < 2;
    }
    tiles.erase(std::max_element(
        tiles.begin(), tiles.end(),
        [&](const RingCandidate& a, const RingCandidate& b) { return bytes_of_slot(a) < bytes_of_slot(b); }));
  }
}

// A loop that runs once may read what is written after it, and what its steps write at places of their own.
Tensors RingSearch::written_before_or_in(const For& loop, const Stmt& s) const {
  const auto own = std::find(grid_.body.begin(), grid_.body.end(), s);
  if (own == grid_.body.end()) return by_any_name(written_by(grid_.body), kernel_);
  Tensors result = written_by(Body(grid_.body.begin(), own));
  for (const Buffer* tensor : written_by(loop.body)) {
    const bool alone = by_any_name({tensor}, kernel_).size() == 1;
    if (!alone || !steps_are_apart(loop, *tensor)) result.insert(tensor);
  }
  return by_any_name(std::move(result), kernel_);
}

// Returns the bytes that the loop's slots take.
std::int64_t RingSearch::plan(const For& loop, const Stmt& s, const Around& around, const Stmt& before) {
  if (loop.stages == 1 || has_one_step(loop)) return 0;
  written_ = written_before_or_in(loop, s);
  const std::vector<RingCandidate> all = tiles_of(loop);
  if (go_back(loop, s, all, before)) return 0;
  std::vector<RingCandidate> tiles = all;
  int depth = 1;
  const bool missing = fit(loop, around.bytes, tiles, depth);
  if (loop.stages > 0 || missing) note_stages(loop, s->at, all, missing ? 1 : depth);
  if (tiles.empty()) return 0;
  CopyRing ring{.number = result_.count(), .depth = depth};
  take(ring, tiles);
  brought_ = {&loop, *bring(loop, tiles)};
  add_events(ring, loop, s->at, brought_.bring, simulated_warps(grid_), around.loops);
  add_laying(ring, result_, grid_, s->at);
  std::int64_t bytes = 0;
  for (const RingCandidate& c : tiles) bytes += depth * bytes_of_slot(c);
  result_.loops.emplace(s.get(), std::move(ring));
  return bytes;
}

void RingSearch::take(CopyRing& ring, const std::vector<RingCandidate>& tiles) {
  for (const RingCandidate& c : tiles) {
    ring.tiles.push_back(c.tile);
    result_.tiles.insert(c.tile.get());
    if (comes_as_run(c)) result_.runs.insert(c.tile.get());
    for (const Stmt& fill : c.fills) result_.fills.insert(fill.get());
  }
}

// The tiles of the loop that the one before it, going the other way, has left in its slots.
std::optional<RingSearch::TilesAgain> RingSearch::left_by(const CopyRing& forward, const For& loop,
                                                          const std::vector<RingCandidate>& tiles) const {
  const std::size_t count = forward.tiles.size();
  if (tiles.size() < count || tiles.size() > most_tiles_of_loops_back) return std::nullopt;
  std::vector<bool> taken(tiles.size());
  std::fill_n(taken.begin(), count, true);
  do {
    std::vector<RingCandidate> own;
    for (std::size_t i = 0; i < tiles.size(); ++i)
      if (taken[i]) own.push_back(tiles[i]);
    const auto brought = bring(loop, own);
    if (!brought) continue;
    if (auto again = copies_again(brought_, {&loop, *brought})) return TilesAgain{own, *again};
  } while (std::prev_permutation(taken.begin(), taken.end()));
  return std::nullopt;
}

// True if the loop goes back over the tiles of the one before it, and has got its slots. Its other tiles stay
// where they are used.
bool RingSearch::go_back(const For& loop, const Stmt& s, const std::vector<RingCandidate>& tiles,
                         const Stmt& before) {
  const auto found = result_.loops.find(before.get());
  if (found == result_.loops.end() || found->second.goes_back || tiles.empty()) return false;
  if (std::any_of(tiles.begin(), tiles.end(), [&](const RingCandidate& c) { return comes_as_run(c); }))
    return false;
  CopyRing& forward = found->second;
  const auto left = left_by(forward, loop, tiles);
  if (!left) return false;
  forward.stays = true;
  CopyRing ring{.number = forward.number, .depth = forward.depth, .goes_back = true};
  take(ring, left->tiles);
  ring.tiles = tiles_again(forward.tiles, brought_.bring, left->copies);
  add_events_back(ring, loop, s->at, *brought_.loop, left->copies, simulated_warps(grid_));
  result_.loops.emplace(s.get(), std::move(ring));
  return true;
}

}  // namespace

int CopyRings::count() const {
  return static_cast<int>(
      std::count_if(loops.begin(), loops.end(), [](const auto& n) { return !n.second.goes_back; }));
}

CopyRings plan_copy_rings(const Kernel& kernel, std::size_t number, const CudaTarget& target) {
  return RingSearch(kernel, kernel.grids[number], target).run();
}

}  // namespace tegula::passes

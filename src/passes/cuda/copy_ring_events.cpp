#include "passes/cuda/copy_ring_events.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/run_copies.hpp"
#include "schedule/build.hpp"

namespace tegula::passes {

using namespace ir;
using schedule::Event;
using schedule::Events;

namespace {

constexpr int most_warps = 4;  // all do the same: more of them show nothing new

Event made_from(schedule::What what, const Stmt& s) {
  return {std::move(what), schedule::Who::all, "", s, s->at};
}

// Variables get their numbers when the whole schedule is put together.
schedule::Count unnumbered() { return {}; }

class LoopEvents {
 public:
  LoopEvents(CopyRing& ring, const For& loop, const Loc& at, const Body& bring, int warps)
      : ring_(ring),
        loop_(loop),
        at_(at),
        bring_(bring),
        warps_(warps),
        type_(loop.begin[0]->held()),
        meet_{schedule::Barrier{0, false, 0, 32 * warps, true}} {}

  void add(bool again) {
    const Event advance{schedule::Advance{ring_.number}};
    const VariablePtr first = let("first", loop_.begin[0]), last = let("last", loop_.end[0]);
    // Some threads may still read slots of the loop's previous execution.
    if (again) ring_.before.push_back(meet_);
    ring_.before.push_back(fill_ahead(first, last, advance));
    ring_.before.push_back(advance);
    const Expr step = sum(variable(loop_.index[0], at_), constant(type_, ring_.depth - 1, at_));
    add_step({filled(step, last, -1)});
    ring_.end.push_back(advance);
  }

  // The tiles of the first steps are in the slots, the last one's in front of the cursor. A step goes one
  // slot back, and fills the slot that the one before it has released with the tile that comes `depth - 1`
  // steps later, by the number that it has in the loop forward.
  void add_back(const For& forward) {
    const Expr index = variable(loop_.index[0], at_), none = constant(type_, 0, at_);
    const Expr left = make(Op::sub, type_, {loop_.end[0], constant(type_, ring_.depth, at_)}, at_);
    const VariablePtr own = new_variable("again", type_, VariableKind::let, at_);
    const Stmt number = statement(Let{own, make(Op::sub, type_, {left, index}, at_)}, at_);
    const Expr exists = make(
        Op::logical_and, boolean,
        {make(Op::gt, boolean, {index, none}, at_), make(Op::ge, boolean, {variable(own, at_), none}, at_)},
        at_);
    add_step({made_from(schedule::Operation{}, number), filled(forward, variable(own, at_), exists, 1)});
    ring_.begin.insert(ring_.begin.begin(), Event{schedule::Advance{ring_.number, true}});
  }

 private:
  // Each step waits for its tiles and then issues the copies for a later one.
  void add_step(const Events& copies) {
    ring_.begin = {{schedule::CopyWait{ring_.depth - 2}}, meet_};
    ring_.begin.insert(ring_.begin.end(), copies.begin(), copies.end());
    ring_.begin.push_back(commit_);
    ring_.end = {step_is_over()};
    // Where a step leaves the loop, the next ones' copies are on their way to memory that others get.
    ring_.after = {{schedule::CopyWait{0}}, nothing_comes()};
  }

  Expr sum(const Expr& a, const Expr& b) const { return make(Op::add, type_, {a, b}, at_); }

  VariablePtr let(const char* name, const Expr& value) {
    const VariablePtr v = new_variable(name, type_, VariableKind::let, at_);
    ring_.before.push_back(made_from(schedule::Operation{}, statement(Let{v, value}, at_)));
    return v;
  }

  // The first steps' tiles, a group of copies each, whether or not there are as many steps.
  Event fill_ahead(const VariablePtr& first, const VariablePtr& last, const Event& advance) {
    const VariablePtr i = new_variable("ahead", type_, VariableKind::index, at_);
    const Event fill = filled(sum(variable(first, at_), variable(i, at_)), last, 0);
    const For loop{
        LoopKind::pipelined, {i}, {constant(type_, 0, at_)}, {constant(type_, ring_.depth - 1, at_)}, 0,
        {fill.stmt}};
    return made_from(
        schedule::Loop{schedule::Loop::Kind::counted, {ring_.depth - 1}, {fill, commit_, advance}},
        statement(loop, at_));
  }

  Event step_is_over() const {
    schedule::Operation all;
    for (int tile = 0; tile < static_cast<int>(ring_.tiles.size()); ++tile)
      all.accesses.push_back(schedule::read(tile, schedule::at_cursor(ring_.number)));
    return {std::move(all), schedule::Who::all, "the step is over", nullptr, at_};
  }

  // Each warp sees to the elements that it has copied.
  Event nothing_comes() const {
    schedule::Operation all;
    for (int slot = 0; slot < ring_.depth; ++slot)
      for (int tile = 0; tile < static_cast<int>(ring_.tiles.size()); ++tile)
        all.accesses.push_back(
            schedule::read(tile, schedule::at_cursor(ring_.number, slot), {}, {filled_parts(tile), 0, 1}));
    return {std::move(all), schedule::Who::all, "no copy is on its way", nullptr, at_};
  }

  // The parts of a tile that a warp fills in a step.
  std::uint64_t filled_parts(int tile) const {
    std::uint64_t mask = 0;
    for (int fill = 0; fill < fills_[static_cast<std::size_t>(tile)]; ++fill)
      mask |= std::uint64_t{1} << warps_ * fill;
    return mask;
  }

  Event filled(const Expr& step, const VariablePtr& last, int shift) {
    return filled(loop_, step, make(Op::lt, boolean, {step, variable(last, at_)}, at_), shift);
  }

  // The tiles of a loop's step, if there is one, to the slot that comes so many after the cursor.
  Event filled(const For& loop, const Expr& step, const Expr& exists, int shift) {
    const Body own = simplify_expressions(fresh_copy(substitute(bring_, {{loop.index[0], step}})));
    fills_.assign(ring_.tiles.size(), 0);
    return branch(statement(If{exists, own, {}}, at_), shift);
  }

  Event branch(const Stmt& s, int shift) {
    return made_from(
        schedule::Loop{schedule::Loop::Kind::counted, unnumbered(), copies(as<If>(s)->then, shift)}, s);
  }

  Events copies(const Body& body, int shift) {
    Events result;
    for (const Stmt& s : body) {
      const Effects e = all_effects(s);
      const auto tile = std::find_if(ring_.tiles.begin(), ring_.tiles.end(),
                                     [&](const BufferPtr& own) { return e.writes(own); });
      if (as<If>(s)) {
        result.push_back(branch(s, shift));
      } else if (tile == ring_.tiles.end()) {
        result.push_back(made_from(schedule::Operation{}, s));
      } else {
        // The number of the tile in its ring until buffers are numbered. Each warp has its own elements.
        const auto number = static_cast<int>(tile - ring_.tiles.begin());
        const schedule::Parts own{std::uint64_t{1} << warps_ * fills_[static_cast<std::size_t>(number)]++, 0,
                                  1};
        result.push_back(made_from(
            schedule::CopyAsync{schedule::write(number, schedule::at_cursor(ring_.number, shift), {}, own)},
            s));
      }
    }
    return result;
  }

  CopyRing& ring_;
  const For& loop_;
  const Loc at_;
  const Body& bring_;
  const int warps_;
  const DType type_;
  const Event commit_{schedule::CopyCommit{}}, meet_;
  std::vector<int> fills_;  // of each tile, so far in a step
};

// Puts the loops' events into what is around them.
class WholeGrid {
 public:
  WholeGrid(schedule::Schedule& out, const CopyRings& rings, int warps) : out_(out), rings_(rings) {
    std::vector<const CopyRing*> sorted(static_cast<std::size_t>(rings.count()));
    for (const auto& [loop, ring] : rings.loops)
      if (!ring.goes_back) sorted[static_cast<std::size_t>(ring.number)] = &ring;
    for (const CopyRing* ring : sorted) {
      schedule::Ring own{ring->tiles[0]->name, {}, ring->depth};
      own.barriers = false;
      for (const BufferPtr& tile : ring->tiles) {
        own.buffers.push_back(static_cast<int>(out.buffers.size()));
        buffers_.emplace(tile.get(), std::pair{own.buffers.back(), ring->number});
        // Without its size: loops that follow each other share memory, which the printer accounts for.
        out.buffers.push_back(
            {tile->name, schedule::Space::shared, ring->depth, 1, 0, most_fills_of_a_tile * warps});
      }
      out.rings.push_back(std::move(own));
    }
    for (const auto& [loop, ring] : rings.loops) {
      if (ring.is_own)
        for (const BufferPtr& tile : ring.tiles) own_.insert(tile.get());
      for (std::size_t i = 0; ring.goes_back && i < ring.tiles.size(); ++i)
        buffers_.emplace(ring.tiles[i].get(),
                         buffers_.at(sorted[static_cast<std::size_t>(ring.number)]->tiles[i].get()));
    }
  }

  Events body(const Body& statements) {
    Events result;
    for (const Stmt& s : statements) {
      const auto ring = rings_.loops.find(s.get());
      if (ring != rings_.loops.end()) {
        append(result, whole(*as<For>(s), s, ring->second));
      } else if (has_rings(s)) {
        for_each_body(s, [&](const Body& inner) {
          result.push_back(
              made_from(schedule::Loop{schedule::Loop::Kind::counted, times(s), body(inner)}, s));
        });
      } else if (auto accesses = reads(s); !accesses.empty()) {
        result.push_back(made_from(schedule::Operation{std::move(accesses)}, s));
      }
    }
    return result;
  }

 private:
  static void append(Events& to, Events from) {
    for (Event& e : from) to.push_back(std::move(e));
  }

  bool has_rings(const Stmt& s) const {
    bool found = false;
    for_each_body(s, [&](const Body& inner) {
      for_each_stmt(inner, [&](const Stmt& n) { found |= rings_.loops.contains(n.get()); });
    });
    return found;
  }

  std::vector<schedule::Access> reads(const Stmt& s) const {
    std::vector<schedule::Access> result;
    if (rings_.fills.contains(s.get())) return result;
    std::unordered_set<const Buffer*> known;
    const Effects e = all_effects(s);
    for (const Region& r : e.regions) {
      const auto own = buffers_.find(r.view->buffer.get());
      if (own == buffers_.end() || !known.insert(own->first).second) continue;
      result.push_back(schedule::read(own->second.first, schedule::at_cursor(own->second.second), {},
                                      own_.contains(own->first) ? own_parts : schedule::Parts{}));
    }
    return result;
  }

  schedule::Count add(const schedule::Variable& v) {
    out_.variables.push_back(v);
    return {0, {{1, {static_cast<int>(out_.variables.size()) - 1}}}};
  }

  schedule::Count times(const Stmt& s) {
    const auto* loop = as<For>(s);
    if (!loop) return add(as<If>(s) ? schedule::Variable{"branch", 0, 1} : schedule::Variable{"steps"});
    if (is_constant(loop->begin[0]) && is_constant(loop->end[0]))
      return {static_cast<int>(std::clamp<std::int64_t>(
          constant_value(loop->end[0]) - constant_value(loop->begin[0]), 0, most_simulated_steps))};
    return add({"steps of " + loop->index[0]->name});
  }

  Events whole(const For& loop, const Stmt& s, const CopyRing& ring) {
    Events result = numbered(ring.before, ring), steps = numbered(ring.begin, ring);
    append(steps, numbered(ring.lifted, ring));
    append(steps, numbered(ring.laid, ring));
    append(steps, body(loop.body));
    append(steps, numbered(ring.end, ring));
    // A loop that goes back has as many steps as the one before it, whose slots it begins in.
    if (!ring.goes_back) steps_.insert_or_assign(ring.number, times(s));
    result.push_back(made_from(
        schedule::Loop{schedule::Loop::Kind::counted, steps_.at(ring.number), std::move(steps)}, s));
    append(result, numbered(ring.after, ring));
    return result;
  }

  Events numbered(Events events, const CopyRing& ring) {
    for (Event& e : events) {
      if (auto* n = std::get_if<schedule::Loop>(&e.what)) {
        n->body = numbered(std::move(n->body), ring);
        // Steps after the last one count as well: with more copies on their way more could go wrong.
        if (as<If>(e.stmt)) n->count = add({"there is such a step", 1, 1});
      }
      if (auto* n = std::get_if<schedule::CopyAsync>(&e.what)) number(n->to, ring);
      if (auto* n = std::get_if<schedule::Operation>(&e.what))
        for (schedule::Access& access : n->accesses) {
          if (ring.is_own) access.parts = own_parts;
          number(access, ring);
        }
    }
    return events;
  }

  void number(schedule::Access& access, const CopyRing& ring) const {
    access.buffer = buffers_.at(ring.tiles[static_cast<std::size_t>(access.buffer)].get()).first;
  }

  // What the reading warp has copied of a tile that one statement fills.
  static constexpr schedule::Parts own_parts{1, 0, 1, 0};
  static constexpr std::int64_t most_simulated_steps = 20;  // more than twice as many as slots

  schedule::Schedule& out_;
  const CopyRings& rings_;
  std::unordered_map<const Buffer*, std::pair<int, int>> buffers_;  // and the ring
  std::unordered_set<const Buffer*> own_;                           // tiles of which warps read their parts
  std::unordered_map<int, schedule::Count> steps_;                  // of each ring's loops
};

}  // namespace

int simulated_warps(const Grid& grid) { return std::clamp(grid.hints.threads / 32, 1, most_warps); }

void add_events(CopyRing& ring, const For& loop, const Loc& at, const Body& bring, int warps, bool again) {
  LoopEvents(ring, loop, at, bring, warps).add(again);
}

void add_laying(CopyRing& ring, CopyRings& rings, const Grid& grid, const Loc& at) {
  schedule::Operation lift, lay;
  for (int tile = 0; tile < static_cast<int>(ring.tiles.size()); ++tile) {
    const Buffer* own = ring.tiles[static_cast<std::size_t>(tile)].get();
    if (!rings.runs.contains(own) || !is_read_again(grid.body, *own)) continue;
    rings.laid.insert(own);
    lift.accesses.push_back(schedule::read(tile, schedule::at_cursor(ring.number)));
    lay.accesses.push_back(schedule::write(tile, schedule::at_cursor(ring.number), {}, {1, 0, 1}));
  }
  if (lift.accesses.empty()) return;
  const Event meet{schedule::Barrier{0, false, 0, 32 * simulated_warps(grid), true}};
  ring.lifted = {{std::move(lift), schedule::Who::all, "rows are lifted", nullptr, at}, meet};
  ring.laid = {{std::move(lay), schedule::Who::all, "rows are laid down", nullptr, at}, meet};
}

void add_events_back(CopyRing& ring, const For& loop, const Loc& at, const For& forward, const Body& bring,
                     int warps) {
  LoopEvents(ring, loop, at, bring, warps).add_back(forward);
}

schedule::Schedule copy_ring_schedule(const std::string& name, const Grid& grid, const CopyRings& rings) {
  schedule::Schedule result;
  result.name = name;
  result.launch_registers = 32;
  const int warps = simulated_warps(grid);
  WholeGrid whole(result, rings, warps);
  result.roles.push_back({"all threads", 1, warps, 0, whole.body(grid.body)});
  return result;
}

}  // namespace tegula::passes

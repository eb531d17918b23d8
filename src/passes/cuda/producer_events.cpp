#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/role_events.hpp"

namespace tegula::passes {

using namespace ir;
using schedule::Event;
using schedule::Events;
using schedule::What;
using schedule::Who;

namespace {

// Of a tile, that one statement of a body fills.
struct Part {
  int number = 0, count = 0;
};

// The warps that transpose fill tiles too, from slots that the first warp fills.
enum class Filler { producer, transposer };

class Producer {
 public:
  Producer(ScheduleNames& names, const Roles& roles, Filler who);
  Events run();

 private:
  Events body(const Body& statements, std::vector<int> to_come = {});
  std::unordered_map<int, const StmtNode*> last_readers_of(const std::vector<int>& rings,
                                                           const Body& statements) const;
  void let_go(const Stmt& s, const std::unordered_map<int, const StmtNode*>& last_readers, Events& out) const;
  bool has_fills(const Stmt& s) const;
  bool fills_ring(const Stmt& s, int ring) const;
  schedule::Count count_of(const Stmt& s);
  std::vector<schedule::Access> reads(const Stmt& s) const;
  void await(const Stmt& s, std::vector<int>& to_come, Events& out);
  void meet(Events& out) const;
  // The first of the tiles that come with this one.
  const Buffer* first_with(const BufferPtr& tile) const {
    return roles_.rings[static_cast<std::size_t>(roles_.ring_of(tile.get()))].with(tile.get())[0].get();
  }
  // The slot for the tiles that come with this one.
  void acquire(int ring, const BufferPtr& first, Events& out);
  void fill(const Stmt& s, const BufferPtr& tile, const Part& part, bool last, Events& out);
  int loading_warp(const Part& part) const;
  void load(const Stmt& s, const BufferPtr& tile, const Part& part, Events& out);
  void fill_by_threads(const Stmt& s, const BufferPtr& tile, int part, Events& out);
  void transpose(const Stmt& s, const BufferPtr& tile, bool last, Events& out);
  void nested(const Stmt& s, std::vector<int>& open, Events& out);
  // The tiles that a body fills.
  struct Fills {
    std::vector<int> open;                                    // rings
    std::unordered_map<const Buffer*, Part> next;             // of each tile
    std::unordered_map<const Buffer*, const StmtNode*> last;  // that fills a tile that comes with this one
    std::unordered_map<int, const Buffer*> first;             // of the tiles that come in an open ring
  };
  Fills fills_of(const Body& statements) const;
  void fill_next(const Stmt& s, Fills& fills, std::vector<int>& to_come, Events& out);
  void other(const Stmt& s, Events& out) const;

  bool transposes() const { return who_ == Filler::transposer; }
  Who readers() const { return roles_.one_loader && !transposes() ? Who::one : Who::all; }

  ScheduleNames& names_;
  const Roles& roles_;
  Filler who_;
  std::unordered_map<const StmtNode*, BufferPtr> fills_;  // the tiles that it fills
  std::unordered_set<const Buffer*> operands_;            // that tensor cores read
};

Producer::Producer(ScheduleNames& names, const Roles& roles, Filler who)
    : names_(names), roles_(roles), who_(who) {
  for (const auto& [fill, tile] : roles.fills) {
    const bool is_own = roles.rings[static_cast<std::size_t>(roles.ring_of(tile.get()))].by_transposer;
    if (transposes() == is_own) fills_.emplace(fill, tile);
  }
  for (const auto& [copy, tiles] : roles.transpositions)
    if (transposes()) fills_.emplace(copy, tiles.to);
  for_each_stmt(roles.consumer, [&](const Stmt& s) {
    const auto* gemm = as<Gemm>(s);
    if (!gemm || !is_on_tensor_cores(*gemm)) return;
    for (const View* operand : {&gemm->a, &gemm->b}) operands_.insert(operand->buffer.get());
  });
}

// One thread needs longer to begin many small copies than the engine to make them, so that warps take them in
// turn. They have met since the slot was free; bytes may arrive before the first warp expects them.
int Producer::loading_warp(const Part& part) const {
  const int warps = roles_.loaders() / 32;
  return !roles_.one_loader && part.count >= warps ? part.number % warps : 0;
}

bool Producer::has_fills(const Stmt& s) const {
  bool found = false;
  for_each_body(s, [&](const Body& inner) {
    for_each_stmt(inner, [&](const Stmt& n) { found |= fills_.contains(n.get()); });
  });
  return found;
}

bool Producer::fills_ring(const Stmt& s, int ring) const {
  bool found = false;
  for_each_body(s, [&](const Body& inner) {
    for_each_stmt(inner, [&](const Stmt& n) {
      const auto fill = fills_.find(n.get());
      found |= fill != fills_.end() && roles_.ring_of(fill->second.get()) == ring;
    });
  });
  return found;
}

schedule::Count Producer::count_of(const Stmt& s) {
  if (const auto* loop = as<While>(s)) return names_.steps(*loop);
  const auto* loop = as<For>(s);
  const auto whole = roles_.ordered.find(s.get());
  if (whole == roles_.ordered.end()) return loop ? names_.steps(*loop) : names_.taken(*as<If>(s));
  return loop ? names_.all_of_rest(whole->second) : names_.first(whole->second);
}

// That the statement brings to the tile: all of it, or some of its rows.
int bytes_of(const Stmt& s, const BufferPtr& tile) {
  const auto* copy = as<Copy>(s);
  const auto rows = copy ? rows_of(copy->to) : std::nullopt;
  const bool in_part = rows && tile->rank() > 1;
  const std::int64_t elements = in_part ? rows->count * tile->extent(tile->rank() - 1) : tile->elements();
  return static_cast<int>(elements * tile->type.bytes());
}

// Slots that the statement reads.
std::vector<schedule::Access> Producer::reads(const Stmt& s) const {
  std::vector<schedule::Access> result;
  std::vector<const Buffer*> known;
  for (const Region& r : all_effects(s).regions) {
    const BufferPtr& tile = r.view->buffer;
    if (!is_read(r.touch) || !names_.is_ring(tile.get())) continue;
    if (std::find(known.begin(), known.end(), tile.get()) != known.end()) continue;
    known.push_back(tile.get());
    result.push_back(names_.access(tile, schedule::Touch::read));
  }
  return result;
}

// What the statement, with all in it, reads of slots that this body fills.
void Producer::await(const Stmt& s, std::vector<int>& to_come, Events& out) {
  for (const Region& r : all_effects(s).regions) {
    const int ring = roles_.ring_of(r.view->buffer.get());
    if (!is_read(r.touch) || std::erase(to_come, ring) == 0) continue;
    out.push_back({schedule::WaitFull{{ring}}, readers()});
  }
}

void Producer::meet(Events& out) const {
  if (!roles_.one_loader)
    out.push_back({schedule::Barrier{producer_barrier, false, 0, roles_.loaders(), true}});
}

void Producer::acquire(int ring, const BufferPtr& first, Events& out) {
  const RingPlan& plan = roles_.rings[static_cast<std::size_t>(ring)];
  out.push_back({schedule::Acquire{{ring}}, readers()});
  if (transposes()) return;
  // What they have read of the slot has arrived before the engine fills it (`fence_reads`).
  if (plan.is_awaited && !plan.by_rows && !roles_.one_loader) out.push_back({schedule::ProxyFence{}});
  // No warp may fall behind by a whole phase, nor still read the slot.
  if (!plan.by_rows || plan.is_awaited) meet(out);
  if (plan.by_rows) return;
  int bytes = 0;
  for (const BufferPtr& tile : plan.with(first.get()))
    if (!roles_.is_transposed(tile.get())) bytes += static_cast<int>(tile->elements() * tile->type.bytes());
  out.push_back({schedule::Expect{{ring}, bytes}, Who::one});
}

void Producer::load(const Stmt& s, const BufferPtr& tile, const Part& part, Events& out) {
  const int ring = roles_.ring_of(tile.get());
  const TensorCopy& plan = roles_.copies.at(s.get());
  const bool halved = plan.halved >= 0;
  schedule::Access to = names_.access(tile, schedule::Touch::write);
  to.parts.mask = std::uint64_t{1} << part.number;
  if (roles_.cluster() > 1) {
    to.parts.mask = std::uint64_t{halved ? 1u : 3u} << 2 * part.number;
    to.parts.per_cta = halved ? 1 : 0;
  }
  const int bytes = halved ? bytes_of(s, tile) / 2 : bytes_of(s, tile);
  Event load = event_of(schedule::Load{{ring}, to, bytes, halved}, s, Who::one);
  load.warp = loading_warp(part);
  if (!plan.is_clipped) return out.push_back(std::move(load));
  using Guard = schedule::Guard;
  out.push_back(event_of(Guard{Guard::Kind::engine, {std::move(load)}}, s));
  Events own;
  fill_by_threads(s, tile, part.number, own);
  out.push_back(event_of(Guard{Guard::Kind::threads, std::move(own)}, s));
}

void Producer::fill_by_threads(const Stmt& s, const BufferPtr& tile, int part, Events& out) {
  constexpr int own_elements = 1;  // of each thread, in every slot
  std::vector<schedule::Access> accesses = reads(s);
  schedule::Access to = names_.access(tile, schedule::Touch::write);
  to.parts.mask = std::uint64_t{1} << part;
  to.mapping = own_elements;
  accesses.push_back(to);
  out.push_back(event_of(schedule::Operation{std::move(accesses)}, s));
  // Tensor cores read it, or the copy engine fills the slot next time.
  if (operands_.contains(tile.get()) || roles_.copies.contains(s.get()))
    out.push_back({schedule::ProxyFence{}});
  meet(out);
  out.push_back({schedule::Complete{{roles_.ring_of(tile.get())}, bytes_of(s, tile)}, Who::one});
}

// Each warp makes its own pieces of the tile, and needs no other one for it. What it has read it has written,
// so that only the last tile of a slot needs a fence.
void Producer::transpose(const Stmt& s, const BufferPtr& tile, bool last, Events& out) {
  const BufferPtr& from = roles_.transpositions.at(s.get()).from;
  const int source = roles_.ring_of(from.get());
  out.push_back({schedule::WaitFull{{source}}});
  schedule::Access to = names_.access(tile, schedule::Touch::write);
  to.parts.mask = 1, to.parts.per_warp = 1;
  out.push_back(event_of(schedule::Operation{{names_.access(from, schedule::Touch::read), to}}, s));
  if (last) out.push_back({schedule::ProxyFence{}});
  out.push_back({schedule::WarpSync{}});
  if (last)
    out.push_back({schedule::Arrive{schedule::Side::full, {roles_.ring_of(tile.get())}}, Who::each_warp});
  out.push_back({schedule::Arrive{schedule::Side::empty, {source}}, Who::each_warp});
  out.push_back({schedule::Advance{source}});
}

void Producer::fill(const Stmt& s, const BufferPtr& tile, const Part& part, bool last, Events& out) {
  const int ring = roles_.ring_of(tile.get());
  const RingPlan& plan = roles_.rings[static_cast<std::size_t>(ring)];
  if (transposes() && !plan.by_transposer) return transpose(s, tile, last, out);
  if (plan.by_rows) {
    schedule::Access to = names_.access(tile, schedule::Touch::write);
    to.parts.per_warp = 1;
    to.parts.mask = std::uint64_t{1} << part.number * roles_.copying_warps(plan);
    out.push_back(event_of(schedule::CopyAsync{to, reads(s)}, s));
    if (last) out.push_back({schedule::CopyArrive{{ring}}});
    return;
  }
  if (roles_.copies.contains(s.get()))
    load(s, tile, part, out);
  else
    fill_by_threads(s, tile, part.number, out);
  if (last && roles_.is_brought_by_threads(plan))
    out.push_back({schedule::Arrive{schedule::Side::full, {ring}}, Who::one});
}

void Producer::nested(const Stmt& s, std::vector<int>& open, Events& out) {
  const auto* loop = as<For>(s);
  // What the loop goes on with.
  for (const int ring : open) {
    if (fills_ring(s, ring)) out.push_back({schedule::Advance{ring}});
  }
  std::erase_if(open, [&](int ring) { return fills_ring(s, ring); });
  const schedule::Count count = count_of(s);
  const auto* branch = as<If>(s);
  const Body& inner = loop ? loop->body : branch ? branch->then : as<While>(s)->body;
  internal_assert(!branch || branch->otherwise.empty(), "tiles are filled in the first part of a branch");
  out.push_back(event_of(schedule::Loop{schedule::Loop::Kind::counted, count, body(inner)}, s));
}

// Rings that the consumers fill are awaited like its own, and let go behind the last statement that reads
// them.
Events Producer::run() {
  if (transposes()) return body(roles_.transposer);
  std::vector<int> told;
  for (std::size_t ring = 0; ring < roles_.rings.size(); ++ring)
    if (roles_.rings[ring].told) told.push_back(static_cast<int>(ring));
  return body(roles_.producer, std::move(told));
}

void Producer::let_go(const Stmt& s, const std::unordered_map<int, const StmtNode*>& last_readers,
                      Events& out) const {
  for (std::size_t ring = 0; ring < roles_.rings.size(); ++ring) {
    const auto last = last_readers.find(static_cast<int>(ring));
    if (last == last_readers.end() || last->second != s.get()) continue;
    meet(out);
    out.push_back({schedule::Arrive{schedule::Side::empty, {last->first}}, Who::one});
    out.push_back({schedule::Advance{last->first}});
  }
}

// The statement that reads a ring last.
std::unordered_map<int, const StmtNode*> Producer::last_readers_of(const std::vector<int>& rings,
                                                                   const Body& statements) const {
  std::unordered_map<int, const StmtNode*> result;
  for (const Stmt& s : statements)
    for (const Region& r : all_effects(s).regions)
      if (const int ring = roles_.ring_of(r.view->buffer.get());
          std::find(rings.begin(), rings.end(), ring) != rings.end())
        result[ring] = s.get();
  return result;
}

Producer::Fills Producer::fills_of(const Body& statements) const {
  Fills fills;
  for (const Stmt& s : statements)
    if (const auto own = fills_.find(s.get()); own != fills_.end()) {
      fills.last[first_with(own->second)] = s.get();
      ++fills.next[own->second.get()].count;
    }
  return fills;
}

void Producer::fill_next(const Stmt& s, Fills& fills, std::vector<int>& to_come, Events& out) {
  const BufferPtr& tile = fills_.at(s.get());
  const int ring = roles_.ring_of(tile.get());
  const Buffer* const with = first_with(tile);
  const bool is_open = std::find(fills.open.begin(), fills.open.end(), ring) != fills.open.end();
  if (is_open && fills.first.at(ring) != with) out.push_back({schedule::Advance{ring}});
  if (!is_open) fills.open.push_back(ring);
  if (!is_open || fills.first.at(ring) != with) acquire(ring, tile, out);
  fills.first[ring] = with;
  const bool is_last = fills.last.at(with) == s.get();
  Part& part = fills.next[tile.get()];
  fill(s, tile, part, is_last, out);
  ++part.number;
  if (roles_.rings[static_cast<std::size_t>(ring)].is_awaited && is_last) to_come.push_back(ring);
}

// The declaration of a tile that is in a slot is no event.
void Producer::other(const Stmt& s, Events& out) const {
  if (const auto* declared = as<Declare>(s); declared && names_.is_ring(declared->tile.get())) return;
  std::vector<schedule::Access> slots = reads(s);
  const Who who = slots.empty() ? Who::all : readers();
  out.push_back(event_of(schedule::Operation{std::move(slots)}, s, who));
}

Events Producer::body(const Body& statements, std::vector<int> to_come) {
  Events out;
  const auto last_readers = last_readers_of(to_come, statements);
  Fills fills = fills_of(statements);
  const auto advance = [&] {
    for (const int ring : fills.open) out.push_back({schedule::Advance{ring}});
    fills.open.clear();
  };
  for (const Stmt& s : statements) {
    await(s, to_come, out);
    if (fills_.contains(s.get())) {
      fill_next(s, fills, to_come, out);
    } else if (const auto leave = names_.leaves(s)) {
      advance();
      out.push_back(event_of(*leave, s));
    } else if (has_fills(s)) {
      nested(s, fills.open, out);
    } else {
      other(s, out);
    }
    let_go(s, last_readers, out);
  }
  advance();
  return out;
}

}  // namespace

Events producer_events(ScheduleNames& names, const Roles& roles) {
  return Producer(names, roles, Filler::producer).run();
}

Events transposer_events(ScheduleNames& names, const Roles& roles) {
  return Producer(names, roles, Filler::transposer).run();
}

}  // namespace tegula::passes

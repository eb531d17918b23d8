#include <algorithm>

#include "ir/visit.hpp"
#include "passes/cuda/role_events.hpp"

namespace tegula::passes {

using namespace ir;
using schedule::Event;
using schedule::Events;
using schedule::What;
using schedule::Who;

namespace {

class Producer {
 public:
  Producer(ScheduleNames& names, const Roles& roles) : names_(names), roles_(roles) {}
  Events body(const Body& statements);

 private:
  bool has_fills(const Stmt& s) const;
  bool fills_ring(const Stmt& s, int ring) const;
  schedule::Count count_of(const Stmt& s);
  void acquire(int ring, Events& out);
  void fill(const Stmt& s, const BufferPtr& tile, int part, bool last, Events& out);

  ScheduleNames& names_;
  const Roles& roles_;
};

bool Producer::has_fills(const Stmt& s) const {
  bool found = false;
  for_each_body(s, [&](const Body& inner) {
    for_each_stmt(inner, [&](const Stmt& n) { found |= roles_.fills.contains(n.get()); });
  });
  return found;
}

bool Producer::fills_ring(const Stmt& s, int ring) const {
  bool found = false;
  for_each_body(s, [&](const Body& inner) {
    for_each_stmt(inner, [&](const Stmt& n) {
      const auto fill = roles_.fills.find(n.get());
      found |= fill != roles_.fills.end() && roles_.ring_of(fill->second.get()) == ring;
    });
  });
  return found;
}

schedule::Count Producer::count_of(const Stmt& s) {
  const auto* loop = as<For>(s);
  const auto whole = roles_.ordered.find(s.get());
  if (whole == roles_.ordered.end()) return loop ? names_.steps(*loop) : names_.taken(*as<If>(s));
  return loop ? names_.all_of_rest(whole->second) : names_.first(whole->second);
}

// That the statement brings to the tile: all of it, or some of its rows.
int bytes_of(const Stmt& s, const BufferPtr& tile) {
  const auto* copy = as<Copy>(s);
  const auto rows = copy ? rows_of(copy->to) : std::nullopt;
  const std::int64_t columns = tile->extent(tile->rank() - 1);
  const std::int64_t elements = rows && tile->rank() > 1 ? rows->count * columns : tile->elements();
  return static_cast<int>(elements * tile->type.bytes());
}

void Producer::acquire(int ring, Events& out) {
  const RingPlan& plan = roles_.rings[static_cast<std::size_t>(ring)];
  out.push_back({schedule::Acquire{{ring}}, roles_.one_loader ? Who::one : Who::all});
  if (plan.by_rows) return;
  // No warp may fall behind by a whole phase.
  if (!roles_.one_loader)
    out.push_back({schedule::Barrier{producer_barrier, false, 0, producer_threads, true}});
  int bytes = 0;
  for (const BufferPtr& tile : plan.tiles) bytes += static_cast<int>(tile->elements() * tile->type.bytes());
  out.push_back({schedule::Expect{{ring}, bytes}, Who::one});
}

void Producer::fill(const Stmt& s, const BufferPtr& tile, int part, bool last, Events& out) {
  const int ring = roles_.ring_of(tile.get());
  schedule::Access to = names_.access(tile, schedule::Touch::write);
  const bool by_rows = roles_.rings[static_cast<std::size_t>(ring)].by_rows;
  to.parts.per_warp = by_rows ? 1 : 0;
  to.parts.mask = std::uint64_t{1} << (by_rows ? part * (producer_threads / 32) : part);
  if (!by_rows) {
    const auto plan = roles_.copies.find(s.get());
    const bool halved = plan != roles_.copies.end() && plan->second.halved >= 0;
    if (roles_.cluster() > 1) {
      to.parts.mask = std::uint64_t{halved ? 1u : 3u} << 2 * part;
      to.parts.per_cta = halved ? 1 : 0;
    }
    const int bytes = halved ? bytes_of(s, tile) / 2 : bytes_of(s, tile);
    out.push_back(event_of(schedule::Load{{ring}, to, bytes, halved}, s, Who::one));
    if (last && roles_.is_brought_by_threads(roles_.rings[static_cast<std::size_t>(ring)]))
      out.push_back({schedule::Arrive{schedule::Side::full, {ring}}, Who::one});
    return;
  }
  out.push_back(event_of(schedule::CopyAsync{to}, s));
  if (last) out.push_back({schedule::CopyArrive{{ring}}});
}

Events Producer::body(const Body& statements) {
  Events out;
  std::vector<int> open;
  std::unordered_map<const Buffer*, int> parts;   // of each tile that are filled
  std::unordered_map<int, const StmtNode*> last;  // that fills a tile of the ring
  for (const Stmt& s : statements) {
    if (const auto own = roles_.fills.find(s.get()); own != roles_.fills.end())
      last[roles_.ring_of(own->second.get())] = s.get();
  }
  for (const Stmt& s : statements) {
    if (const auto own = roles_.fills.find(s.get()); own != roles_.fills.end()) {
      const int ring = roles_.ring_of(own->second.get());
      if (std::find(open.begin(), open.end(), ring) == open.end()) {
        open.push_back(ring);
        acquire(ring, out);
      }
      fill(s, own->second, parts[own->second.get()]++, last.at(ring) == s.get(), out);
    } else if (has_fills(s)) {
      const auto* loop = as<For>(s);
      // What the loop goes on with.
      for (const int ring : open) {
        if (fills_ring(s, ring)) out.push_back({schedule::Advance{ring}});
      }
      std::erase_if(open, [&](int ring) { return fills_ring(s, ring); });
      const schedule::Count count = count_of(s);
      const Body& inner = loop ? loop->body : as<If>(s)->then;
      internal_assert(loop || as<If>(s)->otherwise.empty(), "tiles are filled in the first part of a branch");
      out.push_back(event_of(schedule::Loop{schedule::Loop::Kind::counted, count, body(inner)}, s));
    } else {
      const auto* declared = as<Declare>(s);
      if (!declared || !names_.is_ring(declared->tile.get()))
        out.push_back(event_of(schedule::Operation{}, s));
    }
  }
  for (const int ring : open) out.push_back({schedule::Advance{ring}});
  return out;
}

}  // namespace

Events producer_events(ScheduleNames& names, const Roles& roles) {
  return Producer(names, roles).body(roles.producer);
}

}  // namespace tegula::passes

#include "passes/cuda/share_slots.hpp"

#include <algorithm>

#include "ir/visit.hpp"
#include "passes/cuda/declared_tiles.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// The loop whose body declares the tile.
Stmt loop_of(const Body& body, const BufferPtr& tile) {
  Stmt result;
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    if (loop && loop->kind == LoopKind::pipelined && declaration_of(loop->body, tile)) result = s;
  });
  return result;
}

bool is_within(const Stmt& s, const Stmt& outer) {
  bool found = false;
  for_each_stmt(as<For>(outer)->body, [&](const Stmt& inner) { found |= inner == s; });
  return found;
}

class SharedSlots {
 public:
  explicit SharedSlots(Roles& roles) : roles_(roles) {}

  bool run() {
    std::vector<RingPlan> kept;
    for (const RingPlan& ring : roles_.rings) {
      RingPlan* const first = best(ring, kept);
      if (!first) {
        kept.push_back(ring);
        continue;
      }
      if (ring.tiles.size() > first->tiles.size()) {
        first->in_place.push_back(std::move(first->tiles));
        first->tiles = ring.tiles;
      } else {
        first->in_place.push_back(ring.tiles);
      }
      if (ring.asked > first->asked) first->asked = ring.asked, first->loop_at = ring.loop_at;
    }
    const bool any = kept.size() < roles_.rings.size();
    roles_.rings = std::move(kept);
    return any;
  }

 private:
  int fills_of(const BufferPtr& tile) const {
    int result = 0;
    for (const auto& [fill, filled] : roles_.fills) result += filled == tile;
    return result;
  }

  // All of it in whole boxes.
  bool is_by_engine(const RingPlan& ring) const {
    return std::all_of(roles_.fills.begin(), roles_.fills.end(), [&](const auto& fill) {
      if (std::find(ring.tiles.begin(), ring.tiles.end(), fill.second) == ring.tiles.end()) return true;
      const auto plan = roles_.copies.find(fill.first);
      return plan != roles_.copies.end() && !plan->second.is_clipped;
    });
  }

  bool is_plain(const RingPlan& ring) const {
    return ring.in_loop && !ring.by_rows && !ring.is_awaited && !ring.to_transpose &&
           !roles_.has_transposed(ring) && is_by_engine(ring);
  }

  // Both come in as many boxes, so that each part of a slot is filled as often.
  bool come_alike(const std::vector<BufferPtr>& a, const std::vector<BufferPtr>& b) const {
    return std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())),
                      b.begin(),
                      [&](const BufferPtr& x, const BufferPtr& y) { return fills_of(x) == fills_of(y); });
  }

  // Whether neither loop is in the other, or both in the same.
  bool are_apart(const RingPlan& ring, const std::vector<BufferPtr>& others) const {
    const Stmt own = loop_of(roles_.consumer, ring.tiles[0]), other = loop_of(roles_.consumer, others[0]);
    return own && other && own != other && !is_within(own, other) && !is_within(other, own);
  }

  bool can_share(const RingPlan& ring, const RingPlan& with) const {
    if (!is_plain(ring) || !is_plain(with)) return false;
    const auto fits = [&](const std::vector<BufferPtr>& others) {
      return are_apart(ring, others) && come_alike(ring.tiles, others);
    };
    return fits(with.tiles) && std::all_of(with.in_place.begin(), with.in_place.end(), fits);
  }

  // The ring to which this one adds the fewest bytes.
  RingPlan* best(const RingPlan& ring, std::vector<RingPlan>& kept) const {
    RingPlan* result = nullptr;
    std::int64_t least = 0;
    for (RingPlan& with : kept) {
      if (!can_share(ring, with)) continue;
      RingPlan both = with;
      both.in_place.push_back(ring.tiles);
      const std::int64_t more = std::max(slot_bytes(with), slot_bytes(ring)) - slot_bytes(with);
      if (!result || more < least) result = &with, least = more;
    }
    return result;
  }

  Roles& roles_;
};

}  // namespace

bool share_slots(Roles& roles) { return SharedSlots(roles).run(); }

}  // namespace tegula::passes

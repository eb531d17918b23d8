#include "passes/cuda/ring_uses.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

int ring_of(const BufferPtr& tile, const Roles& roles, const ConsumerProgram& program) {
  return roles.ring_of(program.in_ring(tile.get()));
}

// Whether the tile is one of those that are used, or comes with them; others of the ring are of other loops.
bool come_together(const BufferPtr& tile, const RingUse& use, const Roles& roles,
                   const ConsumerProgram& program) {
  const RingPlan& ring = roles.rings[static_cast<std::size_t>(use.ring)];
  return &ring.with(program.in_ring(tile.get())) == &ring.with(program.in_ring(*use.tiles.begin()));
}

}  // namespace

std::vector<RingUse> ring_uses(const Body& statements, const Roles& roles, const ConsumerProgram& program) {
  std::vector<RingUse> result;
  const auto last_of = [&](int ring) {
    return std::find_if(result.rbegin(), result.rend(), [&](const RingUse& u) { return u.ring == ring; });
  };
  for (std::size_t i = 0; i < statements.size(); ++i) {
    if (const auto* declared = as<Declare>(statements[i])) {
      const int ring = ring_of(declared->tile, roles, program);
      if (ring < 0 || program.before.contains(declared->tile.get())) continue;
      const auto known = last_of(ring);
      if (known != result.rend() && come_together(declared->tile, *known, roles, program) &&
          known->tiles.insert(declared->tile.get()).second)
        continue;
      const bool kept = roles.dealt && roles.dealt->kept.contains(statements[i].get());
      const bool goes_on = program.held.contains(ring) || kept;
      const Release::Slot slot = goes_on ? Release::Slot::goes_on : Release::Slot::own;
      result.push_back({ring, statements.size(), i, {slot}, {declared->tile.get()}});
      continue;
    }
    const Effects e = all_effects(statements[i]);
    for (const Region& r : e.regions) {
      // Another use of the ring, in a body within this one, is not of this scope.
      if (std::find(e.declared.begin(), e.declared.end(), r.view->buffer) != e.declared.end()) continue;
      if (program.before.contains(r.view->buffer.get())) continue;
      const int ring = ring_of(r.view->buffer, roles, program);
      // What the consumers tell the producer is theirs until it is written.
      if ((roles.is_told(ring) || roles.is_relayed(ring)) && !is_write(r.touch)) continue;
      const auto use = std::find_if(result.rbegin(), result.rend(), [&](const RingUse& u) {
        return u.ring == ring && come_together(r.view->buffer, u, roles, program);
      });
      if (use != result.rend()) use->first = std::min(use->first, i), use->last = i;
    }
  }
  return result;
}

std::vector<RingUse> ring_uses_before(const Body& statements, const std::vector<RingUse>& own,
                                      const Roles& roles, const ConsumerProgram& program) {
  std::vector<RingUse> result;
  for (std::size_t i = 0; i < statements.size(); ++i) {
    for (const Region& r : effects(statements[i]).regions) {
      if (!program.before.contains(r.view->buffer.get())) continue;
      const int ring = ring_of(r.view->buffer, roles, program);
      if (roles.is_relayed(ring)) continue;  // its readers say so with what they wrote
      const auto is_same = [&](const RingUse& use) { return use.ring == ring; };
      std::erase_if(result, is_same);
      result.push_back({ring, i, i, {Release::Slot::before}, {}});
      if (std::any_of(own.begin(), own.end(), is_same)) result.back().slots.push_back(Release::Slot::goes_on);
    }
  }
  return result;
}

}  // namespace tegula::passes

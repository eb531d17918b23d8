#include "passes/cuda/ring_candidates.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/plan_copies.hpp"
#include "passes/cuda/plan_rows.hpp"

namespace tegula::passes {

using namespace ir;

bool fill_all(const RingCandidate& c) {
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

bool reads_between(const Body& producer, const RingCandidate& c) {
  bool filled = false, read = false, found = false;
  for (const Stmt& s : producer) {
    for_each_body(s, [&](const Body& inner) { found |= reads_between(inner, c); });
    filled |= std::find(c.fills.begin(), c.fills.end(), s) != c.fills.end();
    for (const Region& r : all_effects(s).regions)
      read |= filled && is_read(r.touch) && r.view->buffer == c.tile;
    found |= read && std::find(c.fills.begin(), c.fills.end(), s) != c.fills.end();
  }
  return found;
}

bool may_come_late(const RingCandidate& c, bool is_operand) {
  return std::any_of(c.fills.begin(), c.fills.end(), [&](const Stmt& s) {
    const auto* copy = as<Copy>(s);
    return plan_pieces(s) || (copy && plan_copy(*copy, is_operand));
  });
}

}  // namespace tegula::passes

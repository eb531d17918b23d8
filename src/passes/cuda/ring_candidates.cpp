#include "passes/cuda/ring_candidates.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "ir/zero.hpp"
#include "passes/cuda/plan_copies.hpp"
#include "passes/cuda/plan_rows.hpp"

namespace tegula::passes {

using namespace ir;

std::unordered_set<const StmtNode*> fills_of(const std::vector<RingCandidate>& candidates) {
  std::unordered_set<const StmtNode*> result;
  for (const RingCandidate& c : candidates)
    for (const Stmt& s : c.fills) result.insert(s.get());
  return result;
}

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

Reason reason_to_wait(const Stmt& s) {
  if (as<For>(s)) {
    const auto rows = plan_rows(s);
    if (rows || !rows.reason().why.empty()) return rows ? Reason{} : rows.reason();
    return {"a loop over elements computes what it holds", "use another tile for the result"};
  }
  const auto& copy = *as<Copy>(s);
  const DType type = copy.to.buffer->type;
  if (copy.from.is_tile()) return {"it is no copy from a tensor", "copy it from a tensor"};
  if (copy.from.buffer->type != type)
    return {fmt::format("{} of the tensor become {} of the tile", copy.from.buffer->type.name(), type.name()),
            "give the tile the tensor's type, or the tensor the tile's"};
  if (!is_zero(copy.fill))
    return {"elements outside the tensor are filled with a value other than 0", "leave out the fill"};
  if (copy.to.rank() == 0) return {"it is a single element", "read the tensor where it is used"};
  if (type.bytes() >= 4) return {};
  const std::int64_t row_bytes = copy.to.extent(copy.to.rank() - 1) * type.bytes();
  if (row_bytes % piece_bytes == 0 && rows_of(copy.to) && is_own_shape(copy.to)) return {};
  return {fmt::format("its rows have {} bytes, which is not a multiple of {}", row_bytes, piece_bytes),
          fmt::format("use tiles with a multiple of {} columns", piece_bytes / type.bytes())};
}

}  // namespace tegula::passes

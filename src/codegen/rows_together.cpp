#include "codegen/rows_together.hpp"

#include <algorithm>

#include "codegen/rows.hpp"
#include "ir/effects.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

bool touches_buffer(const Effects& effects, const BufferPtr& buffer) {
  return effects.reads(buffer) || effects.writes(buffer);
}

bool share_tile(const Effects& a, const Effects& b) {
  return std::any_of(a.regions.begin(), a.regions.end(),
                     [&](const Region& r) { return touches_buffer(b, r.view->buffer); });
}

bool are_among(const std::vector<VariablePtr>& all, const std::vector<VariablePtr>& any) {
  return std::any_of(any.begin(), any.end(),
                     [&](const VariablePtr& v) { return std::find(all.begin(), all.end(), v) != all.end(); });
}

// A loop that touches tiles only, by vectors.
struct TileLoop {
  RowOp op;
  Effects effects;
};

std::optional<TileLoop> tile_loop(const Stmt& s) {
  std::optional<RowOp> op = row_op(s);
  if (!op || !op->vector || op->outer.empty()) return std::nullopt;
  Effects effects = all_effects(s);
  const bool only_tiles = std::all_of(effects.regions.begin(), effects.regions.end(),
                                      [](const Region& r) { return r.view->is_tile(); });
  if (!only_tiles || effects.reports || effects.leaves) return std::nullopt;
  return TileLoop{*std::move(op), std::move(effects)};
}

// Whether the loop may run before the statement that stands in front of it.
bool may_pass(const TileLoop& loop, const Effects& before) {
  return !before.leaves && !before.reports && !conflict(loop.effects, before) &&
         !are_among(loop.effects.used, before.defined) && !are_among(loop.effects.used, before.assigned);
}

// Behind which statement the loop is to stand; its own place if it is not to move. `passed` are declarations
// of its tiles that have to come with it.
std::size_t place_of(const TileLoop& loop, const Body& before, std::vector<std::size_t>& passed) {
  std::vector<std::size_t> declared;
  for (std::size_t i = before.size(); i-- > 0;) {
    const auto* declare = as<Declare>(before[i]);
    if (declare) {
      if (touches_buffer(loop.effects, declare->tile)) declared.push_back(i);
      continue;
    }
    const std::optional<TileLoop> other = tile_loop(before[i]);
    if (other && aligned(loop.op, other->op) && share_tile(loop.effects, other->effects)) {
      passed = declared;
      return i;
    }
    if (!may_pass(loop, all_effects(before[i]))) break;
  }
  return before.size();
}

}  // namespace

Body rows_together(const Body& body) {
  Body result;
  for (const Stmt& s : body) {
    const std::optional<TileLoop> loop = tile_loop(s);
    std::vector<std::size_t> declarations;
    const std::size_t place = loop ? place_of(*loop, result, declarations) : result.size();
    if (place == result.size()) {
      result.push_back(s);
      continue;
    }
    Body moved;
    for (const std::size_t i : declarations) {  // the last one comes first
      moved.insert(moved.begin(), result[i]);
      result.erase(result.begin() + static_cast<std::ptrdiff_t>(i));
    }
    moved.push_back(s);
    result.insert(result.begin() + static_cast<std::ptrdiff_t>(place) + 1, moved.begin(), moved.end());
  }
  return result;
}

}  // namespace tegula::codegen

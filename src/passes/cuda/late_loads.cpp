#include "passes/cuda/late_loads.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

class Moving {
 public:
  explicit Moving(const Grid& grid) : all_(all_effects(grid.body)) {}

  Body body(const Body& statements) const {
    Body result;
    for (const Stmt& s : statements) result.push_back(inside(s));
    // From the last one on, so that those which move to the same place stay in their order.
    for (std::size_t i = result.size(); i-- > 0;) {
      const auto tile = tile_of_all_blocks(result[i]);
      if (!tile) continue;
      std::size_t use = i + 1;
      bool reduces = false;
      for (; use < result.size() && !touches(result[use], tile); ++use)
        reduces |= as<Reduce>(result[use]) != nullptr;
      if (!reduces || use == result.size()) continue;
      const auto at = [&](std::size_t n) { return result.begin() + static_cast<std::ptrdiff_t>(n); };
      std::rotate(at(i), at(i + 1), at(use));
    }
    return result;
  }

 private:
  Stmt inside(const Stmt& s) const {
    const auto* loop = as<For>(s);
    if (loop && loop->kind == LoopKind::parallel) return s;
    Mapping mapping;
    mapping.body = [&](const Body& inner) { return body(inner); };
    return map(s, mapping);
  }

  static bool touches(const Stmt& s, const BufferPtr& tile) {
    if (as<Declare>(s)) return false;
    const Effects e = all_effects(s);
    return e.reads(tile) || e.writes(tile);
  }

  // The fragment that a loop over its elements loads from places that are the same for every block.
  BufferPtr tile_of_all_blocks(const Stmt& s) const {
    const auto* loop = as<For>(s);
    if (!loop || loop->kind != LoopKind::parallel || loop->body.size() != 2) return nullptr;
    const auto* load = as<Load>(loop->body[0]);
    const auto* store = as<Store>(loop->body[1]);
    if (!load || !store || load->from.view.is_tile() || all_.writes(load->from.view.buffer)) return nullptr;
    if (store->to.view.buffer->space != Space::fragment) return nullptr;
    bool alike = true;
    const auto look = [&](const Expr& e) {
      for_each_variable(e, [&](const VariablePtr& v) {
        const bool own = std::find(loop->index.begin(), loop->index.end(), v) != loop->index.end();
        alike &= own || v == load->variable || v->kind == VariableKind::dim || v->kind == VariableKind::scalar;
      });
    };
    for (const Expr& e : coordinates(load->from)) look(e);
    look(store->value);
    return alike ? store->to.view.buffer : nullptr;
  }

  const Effects all_;
};

}  // namespace

Body late_loads(const Grid& grid) { return Moving(grid).body(grid.body); }

}  // namespace tegula::passes

#include "passes/cuda/order_loads.hpp"

#include <algorithm>
#include <unordered_set>

#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

class Order {
 public:
  Order(const Roles& roles, const ConsumerProgram& program) : result_(roles), program_(program) {}

  Roles run() {
    result_.producer = body(result_.producer);
    return std::move(result_);
  }

 private:
  Body body(const Body& statements) {
    Body result;
    Mapping mapping;
    mapping.body = [&](const Body& inner) { return body(inner); };
    for (const Stmt& s : statements) {
      const auto* loop = as<For>(s);
      if (const Buffer* late = loop ? late_tile(*loop) : nullptr)
        result.push_back(ordered(*loop, *late, s->at));
      else
        result.push_back(has_loop(s) ? map(s, mapping) : s);
    }
    return result;
  }

  // Others stay what they are: fills are known by their statements.
  static bool has_loop(const Stmt& s) {
    bool found = false;
    for_each_body(s, [&](const Body& inner) {
      for_each_stmt(inner, [&](const Stmt& n) {
        const auto* loop = as<For>(n);
        found |= loop && loop->kind == LoopKind::pipelined;
      });
    });
    return found;
  }

  // Such as rows that are looked up, which stand in a slot of this step.
  static bool reads_tiles(const Stmt& s) {
    const Effects e = all_effects(s);
    return std::any_of(e.regions.begin(), e.regions.end(),
                       [](const Region& r) { return is_read(r.touch) && r.view->is_tile(); });
  }

  const Buffer* filled_by(const Stmt& s) const {
    const auto fill = result_.fills.find(s.get());
    return fill == result_.fills.end() ? nullptr : fill->second.get();
  }

  // The tile of the delayed product, if it has its own ring and the producer's loop only loads, in several
  // transfers per tile; with fewer, any order is fast enough.
  const Buffer* late_tile(const For& loop) const {
    if (loop.kind != LoopKind::pipelined) return nullptr;
    const auto late = program_.late.find(loop.index[0].get());
    if (late == program_.late.end()) return nullptr;
    const int ring = result_.ring_of(late->second);
    const auto& tiles = result_.rings[static_cast<std::size_t>(ring)].with(late->second);
    int others = 0, own = 0;
    for (const Stmt& s : loop.body) {
      const auto* declared = as<Declare>(s);
      if (declared && result_.ring_of(declared->tile.get()) < 0) return nullptr;
      if (!filled_by(s) && !declared && !as<Let>(s) && !as<Load>(s)) return nullptr;
      if (reads_tiles(s)) return nullptr;
      if (filled_by(s)) ++(filled_by(s) == late->second ? own : others);
    }
    return others > 0 && own > 1 && tiles.size() == 1 ? late->second : nullptr;
  }

  // What the fills of the tile need, and they.
  Body late_part(const For& loop, const Buffer& tile) const {
    Body result;
    std::unordered_set<const Variable*> needed;
    for (auto s = loop.body.rbegin(); s != loop.body.rend(); ++s) {
      const Effects e = all_effects(*s);
      const bool defines = std::any_of(e.defined.begin(), e.defined.end(),
                                       [&](const VariablePtr& v) { return needed.contains(v.get()); });
      if (filled_by(*s) != &tile && !defines) continue;
      for (const VariablePtr& v : e.used) needed.insert(v.get());
      result.insert(result.begin(), *s);
    }
    return result;
  }

  Body early_part(const For& loop, const Buffer& tile) const {
    Body result = loop.body;
    std::erase_if(result, [&](const Stmt& s) { return filled_by(s) == &tile; });
    return result;
  }

  // The same at another step. The copies of fills are fills.
  Body at_step(const Body& part, const For& loop, const Expr& step) {
    const Body result = fresh_copy(substitute(part, {{loop.index[0], step}}));
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto fill = result_.fills.find(part[i].get());
      if (fill == result_.fills.end() || result[i] == part[i]) continue;
      result_.fills.emplace(result[i].get(), fill->second);
      const auto copy = result_.copies.find(part[i].get());
      if (copy != result_.copies.end()) result_.copies.emplace(result[i].get(), copy->second);
    }
    return result;
  }

  Stmt ordered(const For& loop, const Buffer& tile, const Loc& at) {
    const Body early = early_part(loop, tile), late = late_part(loop, tile);
    const DType type = loop.begin[0]->held();
    const Expr one = constant(type, 1), index = variable(loop.index[0], at);
    For steady = loop;
    steady.begin[0] = make(Op::add, type, {loop.begin[0], one}, at);
    steady.body = early;
    for (const Stmt& s : at_step(late, loop, make(Op::sub, type, {index, one}, at))) steady.body.push_back(s);
    Body first = early;  // without tiles: those of rings stay the same
    std::erase_if(first, [](const Stmt& s) { return as<Declare>(s) != nullptr; });
    Body all = at_step(first, loop, loop.begin[0]);
    all.push_back(statement(steady, at));
    result_.ordered.emplace(all.back().get(), loop);
    for (const Stmt& s : at_step(late, loop, make(Op::sub, type, {loop.end[0], one}, at))) all.push_back(s);
    const Expr has_steps = make(Op::lt, boolean, {loop.begin[0], loop.end[0]}, at);
    Stmt branch = statement(If{has_steps, std::move(all), {}}, at);
    result_.ordered.emplace(branch.get(), loop);
    return branch;
  }

  Roles result_;
  const ConsumerProgram& program_;
};

}  // namespace

// Warps that transpose tiles take them in the order of the program.
Roles order_loads(const Roles& roles, const ConsumerProgram& program) {
  return roles.transposer.empty() ? Order(roles, program).run() : roles;
}

}  // namespace tegula::passes

#include "passes/cuda/delay_products.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/split_steps.hpp"
#include "passes/plain_control.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

class Delay {
 public:
  Delay(const Roles& roles, const CudaTarget& target) : roles_(roles), target_(target) {}

  ConsumerProgram run() {
    result_.body = body(without_single_steps(roles_.consumer));
    result_.in_loops = rings_in_loops(result_.body, false);
    std::int64_t spare = roles_.spare_bytes;
    for_each_stmt(result_.body, [&](const Stmt& s) {
      const auto* loop = as<For>(s);
      // A delayed product reads what the step before has made.
      if (loop && loop->kind == LoopKind::pipelined && !result_.shapes.contains(s.get()))
        alternate(*loop, spare);
    });
    return std::move(result_);
  }

 private:
  Body body(const Body& statements) {
    Body result;
    Mapping mapping;
    mapping.body = [&](const Body& inner) { return body(inner); };
    std::size_t late = 0;  // behind the branch of the last delayed product, if there is one
    for (const Stmt& s : statements) {
      const auto* loop = as<For>(s);
      if (loop && loop->kind == LoopKind::pipelined) {
        if (const auto shaped = shape(*loop, s->at)) {
          result.insert(result.end(), shaped->begin(), shaped->end());
          if (result_.late.contains(loop->index[0].get())) late = result.size();
          continue;
        }
      }
      const bool whole = loop && loop->kind == LoopKind::parallel;
      result.push_back(whole ? s : map(s, mapping));
    }
    if (late > 0) overlap(result, late - 1);
    return result;
  }

  // Elements of fragments of one dimension, and of tensors.
  static bool forms_rows(const Stmt& s, const Effects& e) {
    const auto* loop = as<For>(s);
    if (loop ? loop->kind != LoopKind::parallel : !as<Declare>(s)) return false;
    if (e.leaves || e.reports || !e.assigned.empty()) return false;
    const auto is_row = [](const Buffer& b) { return b.space == Space::fragment && b.rank() == 1; };
    const auto* declared = as<Declare>(s);
    return (!declared || is_row(*declared->tile)) &&
           std::all_of(e.regions.begin(), e.regions.end(),
                       [&](const Region& r) { return !r.view->is_tile() || is_row(*r.view->buffer); });
  }

  // Rows that do not wait for the last product are formed while it runs, or without it where no step was.
  void overlap(Body& all, std::size_t at) {
    const Stmt branch = all[at];
    const auto& own = *as<If>(branch);
    std::vector<Effects> before = {all_effects(own.then)};  // of what the moved ones would overtake
    Body declared, moved, rest;
    for (std::size_t i = at + 1; i < all.size(); ++i) {
      Effects e = all_effects(all[i]);
      const bool free =
          forms_rows(all[i], e) && std::none_of(before.begin(), before.end(), [&](const Effects& b) {
            return conflict(b, e) ||
                   std::any_of(b.defined.begin(), b.defined.end(), [&](const VariablePtr& v) {
                     return std::find(e.used.begin(), e.used.end(), v) != e.used.end();
                   });
          });
      (!free ? rest : as<Declare>(all[i]) ? declared : moved).push_back(all[i]);
      if (!free) before.push_back(std::move(e));
    }
    if (moved.empty()) return;
    If with = own;
    with.then.insert(with.then.end(), moved.begin(), moved.end());
    const Stmt taken = statement(with, branch->at);
    result_.non_empty.emplace(taken.get(), result_.non_empty.at(branch.get()));
    const Expr none = make(Op::logical_not, boolean, {own.condition}, branch->at);
    all.resize(at);
    all.insert(all.end(), declared.begin(), declared.end());
    all.push_back(taken);
    all.push_back(statement(If{none, fresh_copy(moved), {}}, branch->at));
    all.insert(all.end(), rest.begin(), rest.end());
  }

  // Whose tiles stand in loops that are left.
  std::unordered_set<int> rings_in_loops(const Body& statements, bool inside) const {
    std::unordered_set<int> result;
    for (const Stmt& s : statements) {
      if (inside && is_ring_declaration(s)) result.insert(static_cast<int>(ring_of(s)));
      const auto* loop = as<For>(s);
      for_each_body(s, [&](const Body& inner) {
        result.merge(rings_in_loops(inner, inside || (loop && loop->kind == LoopKind::pipelined)));
      });
    }
    return result;
  }

  bool is_ring(const Buffer* tile) const { return roles_.ring_of(tile) >= 0; }

  bool is_wgmma(const Stmt& s) const {
    const auto* gemm = as<Gemm>(s);
    if (!gemm) return false;
    // One whose sums are added is awaited at once.
    const GemmPlan plan = plan_gemm(*gemm, roles_.consumers, target_);
    return plan.instruction == GemmInstruction::wgmma && !needs_promotion(*gemm, plan);
  }

  void alternate(const For& loop, std::int64_t& spare) {
    int counting = -1;
    for (const Stmt& s : loop.body) {
      const auto* declared = as<Declare>(s);
      const int ring = declared ? roles_.ring_of(declared->tile.get()) : -1;
      if (ring >= 0 && roles_.rings[static_cast<std::size_t>(ring)].depth % 2 == 0) counting = ring;
    }
    if (counting < 0) return;
    for (const Stmt& s : loop.body) {
      const auto* declared = as<Declare>(s);
      if (!declared || declared->tile->space != Space::shared || is_ring(declared->tile.get())) continue;
      const auto reads = [&](const Stmt& n) {
        const auto* gemm = as<Gemm>(n);
        return gemm && (gemm->a.buffer == declared->tile || gemm->b.buffer == declared->tile);
      };
      const std::int64_t bytes = slot_bytes(*declared->tile);
      if (std::none_of(loop.body.begin(), loop.body.end(), reads) || bytes > spare) continue;
      result_.alternating.emplace(declared->tile.get(), counting);
      spare -= bytes;
    }
  }

  bool is_ring_declaration(const Stmt& s) const {
    const auto* n = as<Declare>(s);
    return n && is_ring(n->tile.get());
  }

  std::size_t ring_of(const Stmt& declaration) const {
    return static_cast<std::size_t>(roles_.ring_of(as<Declare>(declaration)->tile.get()));
  }

  // Nothing if the loop stays as it is.
  std::optional<Body> shape(const For& loop, const Loc& at) {
    std::vector<std::size_t> products;
    for (std::size_t i = 0; i < loop.body.size(); ++i) {
      if (is_wgmma(loop.body[i])) products.push_back(i);
      bool nested = false;
      for_each_body(loop.body[i], [&](const Body& inner) {
        for_each_stmt(inner, [&](const Stmt& s) { nested |= is_wgmma(s); });
      });
      if (nested) return std::nullopt;
    }
    if (products.size() == 1 && is_deep(loop, products[0])) return deep(loop, at);
    if (products.size() == 2 && can_delay(loop, products[0], products[1]))
      return delayed(loop, products[0], products[1], at);
    return std::nullopt;
  }

  bool is_deep(const For& loop, std::size_t product) const {
    const auto& gemm = *as<Gemm>(loop.body[product]);
    if (gemm.overwrite || !is_ring(gemm.a.buffer.get()) || !is_ring(gemm.b.buffer.get())) return false;
    for (std::size_t i = 0; i < loop.body.size(); ++i) {
      const Stmt& s = loop.body[i];
      // While a step's product runs, the next step's tile is there.
      if (is_ring_declaration(s) && roles_.rings[ring_of(s)].depth < 2) return false;
      if (i != product && !is_ring_declaration(s) && !as<Let>(s)) return false;
    }
    return true;
  }

  Stmt non_empty(const For& loop, const Loc& at, Body inner, const Stmt& inside) {
    const Expr condition = make(Op::lt, boolean, {loop.begin[0], loop.end[0]}, at);
    Stmt branch = statement(If{condition, std::move(inner), {}}, at);
    result_.non_empty.emplace(branch.get(), inside.get());
    return branch;
  }

  Body deep(const For& loop, const Loc& at) {
    const Stmt inside = statement(loop, at);
    result_.shapes.emplace(inside.get(), LoopShape::deep);
    return {non_empty(loop, at, {inside}, inside)};
  }

  bool can_delay(const For& loop, std::size_t first, std::size_t last) const {
    const auto& gemm = *as<Gemm>(loop.body[last]);
    for (std::size_t i = last + 1; i < loop.body.size(); ++i) {
      if (!as<Let>(loop.body[i])) return false;
    }
    const Effects late = effects(loop.body[last]);
    if (!late.used.empty() || is_ring(gemm.a.buffer.get()) || !is_ring(gemm.b.buffer.get())) return false;
    for (const Stmt& s : loop.body) {
      const auto* declared = as<Declare>(s);
      if (declared && declared->tile == gemm.c.buffer) return false;
    }
    for (std::size_t i = 0; i < last; ++i) {
      const Effects own = all_effects(loop.body[i]);
      if (i <= first && conflict(own, late)) return false;
      // Its tile would be that of the step before.
      const auto is_shared = [&](const Region& r) { return r.view->buffer == gemm.b.buffer; };
      if (std::any_of(own.regions.begin(), own.regions.end(), is_shared)) return false;
    }
    return gemm.a.buffer->space == Space::fragment;
  }

  // The last product in a branch of its own: what only the others use is free before it.
  Body delayed(const For& loop, std::size_t first, std::size_t last, const Loc& at) {
    const auto& gemm = *as<Gemm>(loop.body[last]);
    Body hoisted, early, work, late;
    for (std::size_t i = 0; i < last; ++i) {
      const Stmt& s = loop.body[i];
      const auto* declared = as<Declare>(s);
      if (declared && declared->tile == gemm.a.buffer)
        hoisted.push_back(s);
      else if (declared && declared->tile == gemm.b.buffer)
        late.push_back(s);
      else
        (i <= first ? early : work).push_back(s);
    }
    late.push_back(loop.body[last]);
    result_.late.emplace(loop.index[0].get(), gemm.b.buffer.get());

    For steady = loop;
    const Expr one = constant(loop.begin[0]->held(), 1);
    steady.begin[0] = simplify(make(Op::add, one->held(), {loop.begin[0], one}, at), Facts());
    steady.body = early;
    for (const Body* part : {&late, &work}) steady.body.insert(steady.body.end(), part->begin(), part->end());
    const Body inside = steps(steady, at);

    Body peeled = early;
    peeled.insert(peeled.end(), work.begin(), work.end());
    Body all = simplify_expressions(substitute(peeled, {{loop.index[0], loop.begin[0]}}));
    all.insert(all.end(), inside.begin(), inside.end());
    Body result = hoisted;
    result.push_back(non_empty(loop, at, std::move(all), inside[0]));
    result.push_back(non_empty(loop, at, std::move(late), inside[0]));
    return result;
  }

  Body steps(const For& steady, const Loc& at) {
    Body result;
    if (const auto split = split_steps(steady, at)) {
      result = {statement(split->before, at), statement(split->behind, at)};
      result_.continued.emplace(split->before.index[0].get(), split->behind.index[0].get());
    } else {
      result = {statement(steady, at)};
    }
    for (const Stmt& s : result) result_.shapes.emplace(s.get(), LoopShape::delayed);
    return result;
  }

  const Roles& roles_;
  const CudaTarget& target_;
  ConsumerProgram result_;
};

}  // namespace

ConsumerProgram delay_products(const Roles& roles, const CudaTarget& target) {
  return Delay(roles, target).run();
}

}  // namespace tegula::passes

#include "passes/cuda/delay_products.hpp"

#include <algorithm>
#include <array>

#include "ir/effects.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/chosen_steps.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/late_products.hpp"
#include "passes/cuda/registers.hpp"
#include "passes/cuda/rows_ahead.hpp"
#include "passes/cuda/split_steps.hpp"
#include "passes/cuda/two_sums.hpp"
#include "passes/plain_control.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

class Delay {
 public:
  Delay(const Roles& roles, const CudaTarget& target, bool few_registers)
      : roles_(roles), target_(target), few_registers_(few_registers) {}

  ConsumerProgram run() {
    result_.before = roles_.before;
    if (roles_.dealt) return dealt();
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
  // Products of other steps are in flight already.
  ConsumerProgram dealt() {
    result_.body = roles_.consumer;
    result_.in_loops = rings_in_loops(result_.body, false);
    result_.non_empty = roles_.dealt->non_empty;
    return std::move(result_);
  }

  Body body(const Body& statements) {
    Body result;
    Mapping mapping;
    mapping.body = [&](const Body& inner) { return body(inner); };
    std::size_t late = 0;  // after the branch of the last delayed product, if there is one
    for (const Stmt& s : statements) {
      const auto* loop = as<For>(s);
      if (loop && loop->kind == LoopKind::pipelined) {
        if (const auto shaped = shape(*loop, s->at)) {
          result.insert(result.end(), shaped->begin(), shaped->end());
          if (result_.shapes.at(result_.non_empty.at(result.back().get())) == LoopShape::delayed)
            late = result.size();
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

  void alternate(const For& loop, std::int64_t& spare) {
    int counting = -1;
    for (const Stmt& s : loop.body) {
      const auto* declared = as<Declare>(s);
      const int ring = declared ? roles_.ring_of(declared->tile.get()) : -1;
      if (ring >= 0 && !roles_.is_relayed(ring) &&
          roles_.rings[static_cast<std::size_t>(ring)].depth % 2 == 0)
        counting = ring;
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

  bool can_run_on(const Stmt& s) const { return passes::can_run_on(s, roles_, target_); }

  // Nothing if the loop stays as it is.
  std::optional<Body> shape(const For& loop, const Loc& at) {
    for (const Stmt& own : loop.body) {
      bool nested = false;
      for_each_body(own, [&](const Body& inner) {
        for_each_stmt(inner, [&](const Stmt& s) { nested |= can_run_on(s) || is_ring_declaration(s); });
      });
      if (nested) return std::nullopt;
    }
    if (has_break(without_leaving(loop, loop.body))) return std::nullopt;
    if (is_deep(loop)) return deep(loop, at);
    if (goes_on(loop) == nullptr) {
      For ahead = loop;
      if (!few_registers_) ahead.body = rows_ahead(loop.body, roles_);
      if (const auto plan = two_sums(ahead, roles_, target_)) {
        if (!plan->again) {
          const auto plain = gain_ahead(loop, roles_) ? std::nullopt : two_sums(loop, roles_, target_);
          return plain && !plain->again ? twofold(loop, *plain, at) : twofold(ahead, *plan, at);
        }
        // There is one set of sums: while a warp group adds what is in them, another one multiplies.
        if (roles_.consumers > 128) return in_turns(std::move(ahead), at);
      }
    }
    const auto late = late_products(loop, roles_, target_);
    if (late && few_registers_ && (late->late.size() > 1 || !late->held.empty())) {
      result_.reasons.emplace_back(loop.index[0].get(), too_few_registers());
      return std::nullopt;
    }
    if (late) return delayed(loop, *late, at);
    if (!late.reason().why.empty()) result_.reasons.emplace_back(loop.index[0].get(), late.reason());
    return std::nullopt;
  }

  // Whether a step does nothing but multiply what was loaded, and add to sums that outlive it.
  bool is_deep(const For& loop) const {
    int products = 0;
    for (const Stmt& s : loop.body) {
      // While a step's products run, the next step's tiles are there.
      if (is_ring_declaration(s) && roles_.rings[ring_of(s)].depth < 2) return false;
      if (is_ring_declaration(s) || is_of_variables(s)) continue;
      if (!can_run_on(s)) return false;
      const auto& gemm = *as<Gemm>(s);
      const std::vector<const View*> read = operands(gemm);
      const bool loaded = std::all_of(read.begin(), read.end(),
                                      [&](const View* operand) { return is_ring(operand->buffer.get()); });
      if (gemm.overwrite || !loaded) return false;
      ++products;
    }
    return products > 0;
  }

  static Reason too_few_registers() {
    return {"what two steps need at the same time does not fit into registers",
            "use smaller tiles, or more threads"};
  }

  Stmt non_empty(const Expr& condition, const Loc& at, Body inner, const Stmt& inside) {
    Stmt branch = statement(If{condition, std::move(inner), {}}, at);
    result_.non_empty.emplace(branch.get(), inside.get());
    return branch;
  }

  // Whether the loop has a step, as known in front of it.
  static Expr has_step(const For& loop, const Loc& at, Body& in_front) {
    const VariablePtr more = goes_on(loop);
    if (!more) return make(Op::lt, boolean, {loop.begin[0], loop.end[0]}, at);
    const VariablePtr first = new_variable("more", boolean, VariableKind::let, at);
    in_front.push_back(statement(Let{first, variable(more, at)}, at));
    return variable(first, at);
  }

  Body deep(const For& loop, const Loc& at) {
    const Stmt inside = statement(loop, at);
    result_.shapes.emplace(inside.get(), LoopShape::deep);
    Body result;
    const Expr any = has_step(loop, at, result);
    result.push_back(non_empty(any, at, {inside}, inside));
    return result;
  }

  Body in_turns(For loop, const Loc& at) {
    result_.turns.insert(loop.index[0].get());
    Body result;
    const Expr any = has_step(loop, at, result);
    const Stmt inside = statement(std::move(loop), at);
    result_.shapes.emplace(inside.get(), LoopShape::early);
    result.push_back(non_empty(any, at, {inside}, inside));
    return result;
  }

  std::optional<Body> twofold(const For& loop, const TwoSums& plan, const Loc& at) {
    if (few_registers_) {
      result_.reasons.emplace_back(loop.index[0].get(), too_few_registers());
      return std::nullopt;
    }
    AlternatingLoop own = alternating_loop(loop, plan, at);
    result_.shapes.emplace(own.loop.get(), LoopShape::twofold);
    result_.left_over.emplace(loop.index[0].get(), own.left_over.get());
    const Expr any = has_step(loop, at, own.declared);
    own.declared.push_back(non_empty(any, at, std::move(own.body), own.loop));
    return std::move(own.declared);
  }

  // Tiles of the step before for those that two steps need.
  std::vector<std::pair<BufferPtr, BufferPtr>> held_tiles(const LateProducts& plan) {
    std::vector<std::pair<BufferPtr, BufferPtr>> result;
    for (const BufferPtr& tile : plan.held) {
      Buffer before = *tile;
      before.name += "_before";
      result.emplace_back(tile, std::make_shared<const Buffer>(std::move(before)));
      result_.before.emplace(result.back().second.get(), tile);
      result_.held.insert(roles_.ring_of(tile.get()));
    }
    return result;
  }

  // The delayed products with what they declare: tiles of their own, and those of the step before.
  Body late_part(const For& loop, const LateProducts& plan) {
    const auto held = held_tiles(plan);
    Body result;
    for (const auto& [tile, before] : held) result.push_back(statement(Declare{before}, tile->at));
    for (const std::size_t i : plan.late) {
      Gemm gemm = *as<Gemm>(loop.body[i]);
      const auto twin =
          std::find_if(held.begin(), held.end(), [&](const auto& own) { return own.first == gemm.b.buffer; });
      if (twin == held.end()) {
        const BufferPtr& own = gemm.b.buffer;
        const bool known = std::any_of(result.begin(), result.end(), [&](const Stmt& s) {
          const auto* declared = as<Declare>(s);
          return declared && declared->tile == own;
        });
        if (!known) result.push_back(declaration_in(loop, own));
        result.push_back(loop.body[i]);
        if (plan.late.size() == 1) result_.late.emplace(loop.index[0].get(), own.get());
        continue;
      }
      gemm.b.buffer = twin->second;
      result.push_back(statement(std::move(gemm), loop.body[i]->at));
    }
    return result;
  }

  static Stmt declaration_in(const For& loop, const BufferPtr& tile) {
    return *std::find_if(loop.body.begin(), loop.body.end(), [&](const Stmt& s) {
      const auto* declared = as<Declare>(s);
      return declared && declared->tile == tile;
    });
  }

  // The last products in a branch of their own: what only the others use is free before it.
  Body delayed(const For& loop, const LateProducts& plan, const Loc& at) {
    const Body late = late_part(loop, plan);
    const auto is_late = [&](const Stmt& s) {
      return std::any_of(late.begin(), late.end(), [&](const Stmt& own) { return own == s; });
    };
    Body hoisted, early, work;
    for (std::size_t i = 0; i < loop.body.size(); ++i) {
      const Stmt& s = loop.body[i];
      const auto* declared = as<Declare>(s);
      const bool is_product = std::find(plan.late.begin(), plan.late.end(), i) != plan.late.end();
      if (is_product || is_late(s)) continue;
      if (i > plan.late.back()) continue;  // nothing but what nobody uses
      const bool is_operand = declared && std::any_of(plan.late.begin(), plan.late.end(), [&](std::size_t n) {
                                return as<Gemm>(loop.body[n])->a.buffer == declared->tile;
                              });
      (is_operand ? hoisted : i <= plan.early ? early : work).push_back(s);
    }
    for (const Stmt& s : steady_loops(loop, {early, late, work}, at)) hoisted.push_back(s);
    return hoisted;
  }

  // The first step, the others with the delayed products of the step before, those of the last step.
  Body steady_loops(const For& loop, const std::array<Body, 3>& parts, const Loc& at) {
    const auto& [early, late, work] = parts;
    For steady = loop;
    const Expr one = constant(loop.begin[0]->held(), 1);
    steady.begin[0] = simplify(make(Op::add, one->held(), {loop.begin[0], one}, at), Facts());
    steady.body = early;
    for (const Body* part : {&late, &work}) steady.body.insert(steady.body.end(), part->begin(), part->end());
    const Body inside = steps(steady, at);

    Body peeled = without_leaving(loop, early);
    peeled.insert(peeled.end(), work.begin(), work.end());
    Body all = simplify_expressions(substitute(peeled, {{loop.index[0], loop.begin[0]}}));
    all.insert(all.end(), inside.begin(), inside.end());
    Body result;
    const Expr any = has_step(loop, at, result);
    result.push_back(non_empty(any, at, std::move(all), inside[0]));
    result.push_back(non_empty(any, at, late, inside[0]));
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
  const bool few_registers_;  // for several delayed products, and tiles of two steps
  ConsumerProgram result_;
};

// Whether the fragments of the program fit where those of the block as it was written do.
bool fits(const ConsumerProgram& program, const Roles& roles, const CudaTarget& target) {
  const auto fits_with = [&](const Body& body) {
    return fit(register_needs(body, roles.consumers, target), roles, roles.blocks_per_processor);
  };
  return fits_with(program.body) || !fits_with(roles.consumer);
}

}  // namespace

ConsumerProgram delay_products(const Roles& roles, const CudaTarget& target) {
  ConsumerProgram result = Delay(roles, target, false).run();
  return fits(result, roles, target) ? result : Delay(roles, target, true).run();
}

const Buffer* ConsumerProgram::in_ring(const Buffer* tile) const {
  const auto own = before.find(tile);
  return own == before.end() ? tile : own->second.get();
}

}  // namespace tegula::passes

#include "passes/cuda/two_sums.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/declared_tiles.hpp"
#include "passes/cuda/late_products.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool is_one_of(const std::vector<BufferPtr>& list, const BufferPtr& b) {
  return std::find(list.begin(), list.end(), b) != list.end();
}

bool writes_only_fragments(const Effects& e) {
  return !e.leaves && !e.reports && e.assigned.empty() &&
         std::all_of(e.regions.begin(), e.regions.end(), [](const Region& r) {
           return !is_write(r.touch) || r.view->buffer->space == Space::fragment;
         });
}

class StepDivision {
 public:
  StepDivision(const For& loop, const Roles& roles, const CudaTarget& target)
      : loop_(loop), roles_(roles), target_(target) {}

  std::optional<TwoSums> run() {
    for (const Stmt& s : loop_.body) {
      if (can_run_on(s, roles_, target_) && !add_product(*as<Gemm>(s))) return std::nullopt;
    }
    // A second set of sums is declared where the first one is.
    const bool all_declared = std::all_of(result_.sums.begin(), result_.sums.end(),
                                          [&](const BufferPtr& sum) { return is_declared(sum); });
    if (result_.sums.empty() || (!all_declared && !result_.again)) return std::nullopt;
    for (const Stmt& s : loop_.body) {
      const auto* declared = as<Declare>(s);
      if (can_run_on(s, roles_, target_) || (declared && is_one_of(operands_, declared->tile)))
        result_.products.push_back(s);
      else if (!declared || !is_one_of(result_.sums, declared->tile))
        result_.work.push_back(s);
    }
    if (!has_two_slots() || !is_work()) return std::nullopt;
    return std::move(result_);
  }

 private:
  bool is_ring(const BufferPtr& b) const { return roles_.ring_of(b.get()) >= 0; }

  bool is_declared(const BufferPtr& tile) const { return declaration_of(loop_.body, tile) != nullptr; }

  bool add_product(const Gemm& gemm) {
    if (!effects(statement(gemm, loop_.index[0]->at)).used.empty()) return false;
    for (const View* operand : operands(gemm)) {
      if (!is_ring(operand->buffer)) return false;
      operands_.push_back(operand->buffer);
    }
    const bool begins = !is_one_of(result_.sums, gemm.c.buffer);
    if (begins) result_.sums.push_back(gemm.c.buffer);
    result_.again |= gemm.overwrite && !begins;
    return is_whole(gemm.c) && (gemm.overwrite || !begins);
  }

  bool has_two_slots() const {
    return std::all_of(loop_.body.begin(), loop_.body.end(), [&](const Stmt& s) {
      const auto* declared = as<Declare>(s);
      const int ring = declared ? roles_.ring_of(declared->tile.get()) : -1;
      return ring < 0 || roles_.rings[static_cast<std::size_t>(ring)].depth >= 2;
    });
  }

  // Whose tiles come and go with none of the products.
  bool is_work() {
    bool adds = false;
    for (const Stmt& s : result_.work) {
      const Effects e = all_effects(s);
      if (const auto* declared = as<Declare>(s)) {
        if (is_ring(declared->tile)) result_.tiles.push_back(declared->tile);
        if (!is_ring(declared->tile) && declared->tile->space != Space::fragment) return false;
        continue;
      }
      if (!writes_only_fragments(e) || can_run_on(s, roles_, target_) || as<Gemm>(s)) return false;
      for (const Region& r : e.regions) {
        if (shares_ring(r.view->buffer)) return false;
        adds |= is_read(r.touch) && is_one_of(result_.sums, r.view->buffer);
      }
    }
    return adds;
  }

  bool shares_ring(const BufferPtr& tile) const {
    return is_ring(tile) && std::any_of(operands_.begin(), operands_.end(), [&](const BufferPtr& own) {
             return roles_.ring_of(own.get()) == roles_.ring_of(tile.get());
           });
  }

  const For& loop_;
  const Roles& roles_;
  const CudaTarget& target_;
  std::vector<BufferPtr> operands_;
  TwoSums result_;
};

class Alternation {
 public:
  Alternation(const For& loop, const TwoSums& plan, const Loc& at)
      : loop_(loop), plan_(plan), at_(at), type_(loop.begin[0]->held()) {}

  AlternatingLoop run() {
    AlternatingLoop result;
    for (const BufferPtr& sum : plan_.sums) {
      Buffer other = *sum;
      other.name += "_next";
      others_.emplace(sum, std::make_shared<const Buffer>(std::move(other)));
      for (const BufferPtr& own : {sum, others_.at(sum)})
        result.declared.push_back(statement(Declare{own}, own->at));
    }
    const Expr one = number(1), two = number(2), zero = number(0), index = variable(loop_.index[0], at_);
    // The steps after the first one.
    const Expr steps = op(Op::sub, op(Op::sub, loop_.end[0], loop_.begin[0]), one);
    const Expr pairs = op(Op::floordiv, steps, two), first = loop_.begin[0];
    const Expr step = op(Op::add, first, op(Op::mul, index, two));
    For both = loop_;
    both.begin[0] = zero, both.end[0] = pairs;
    both.body =
        joined({products(true), work(false, step), products(false), work(true, op(Op::add, step, one))});
    result.loop = statement(std::move(both), at_);
    const Expr odd = make(Op::eq, boolean, {op(Op::floormod, steps, two), one}, at_);
    result.left_over = statement(If{odd, products(true), {}}, at_);
    result.body = joined({products(false),
                          {result.loop, result.left_over},
                          work(false, op(Op::add, first, op(Op::mul, pairs, two))),
                          {statement(If{odd, work(true, op(Op::sub, loop_.end[0], one)), {}}, at_)}});
    return result;
  }

 private:
  Expr number(int n) const { return constant(type_, n); }
  Expr op(Op op, const Expr& a, const Expr& b) const { return make(op, type_, {a, b}, at_); }

  static Body joined(const std::vector<Body>& parts) {
    Body result;
    for (const Body& part : parts) result.insert(result.end(), part.begin(), part.end());
    return result;
  }

  Body products(bool others) const {
    return others ? rename_buffers(plan_.products, others_) : plan_.products;
  }

  // With tiles and variables of its own, but for the tiles of rings.
  Body work(bool others, const Expr& step) const {
    Body own = plan_.work, result;
    for (const BufferPtr& tile : plan_.tiles) result.push_back(statement(Declare{tile}, tile->at));
    std::erase_if(own, [&](const Stmt& s) {
      const auto* declared = as<Declare>(s);
      return declared && is_one_of(plan_.tiles, declared->tile);
    });
    own = fresh_copy(simplify_expressions(substitute(own, {{loop_.index[0], step}})));
    if (others) own = rename_buffers(own, others_);
    result.insert(result.end(), own.begin(), own.end());
    return result;
  }

  const For& loop_;
  const TwoSums& plan_;
  const Loc& at_;
  const DType type_;
  BufferRenaming others_;
};

}  // namespace

std::optional<TwoSums> two_sums(const For& loop, const Roles& roles, const CudaTarget& target) {
  return StepDivision(loop, roles, target).run();
}

AlternatingLoop alternating_loop(const For& loop, const TwoSums& plan, const Loc& at) {
  return Alternation(loop, plan, at).run();
}

}  // namespace tegula::passes

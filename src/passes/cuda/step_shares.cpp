#include "passes/cuda/step_shares.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/lists.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/chosen_steps.hpp"
#include "passes/cuda/lane_sums.hpp"
#include "passes/cuda/late_products.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool touches(const Effects& e, const BufferPtr& b) {
  return std::any_of(e.regions.begin(), e.regions.end(),
                     [&](const Region& r) { return r.view->buffer == b; });
}

class Sharing {
 public:
  Sharing(const For& loop, const Roles& roles, const CudaTarget& target)
      : loop_(loop), roles_(roles), target_(target) {
    for (const Stmt& s : loop.body) effects_.push_back(all_effects(s));
    for (const Effects& e : effects_) declared_.insert(declared_.end(), e.declared.begin(), e.declared.end());
  }

  Planned<StepShares> run() {
    const std::size_t last = last_product();
    if (last == loop_.body.size() || goes_on(loop_)) return Reason{};
    for (std::size_t i = 0; i <= last; ++i) {
      if (const Reason reason = add(i); !reason.why.empty()) return reason;
    }
    if (!result_.made) return Reason{};
    if (const Reason reason = reason_of_order(last); !reason.why.empty()) return reason;
    if (const Reason reason = collect_rows(); !reason.why.empty()) return reason;
    // Without maxima or factors of rows the threads need not meet for them, and groups gain little.
    if (result_.rows.empty()) return Reason{};
    return std::move(result_);
  }

 private:
  bool is_declared(const BufferPtr& b) const { return contains(declared_, b); }

  // Which divides columns of a sum that outlives the step among the groups, and multiplies by what the step
  // made; past the end if there is none.
  std::size_t last_product() {
    std::size_t i = loop_.body.size();
    while (i > 0 && (as<Let>(loop_.body[i - 1]) || as<Declare>(loop_.body[i - 1]))) --i;
    const auto* gemm = i > 0 ? as<Gemm>(loop_.body[i - 1]) : nullptr;
    if (!gemm || gemm->metadata || gemm->overwrite) return loop_.body.size();
    const GemmPlan plan = plan_gemm(*gemm, roles_.consumers, target_);
    const bool divided = plan.instruction == GemmInstruction::wgmma && !plan.swapped &&
                         !needs_promotion(*gemm, plan) && plan.parts.along_m == 1 &&
                         plan.parts.along_n == dealt_groups;
    const bool made = gemm->a.buffer->space == Space::shared && is_declared(gemm->a.buffer) &&
                      roles_.ring_of(gemm->a.buffer.get()) < 0 && is_whole(gemm->a);
    const bool loaded = roles_.ring_of(gemm->b.buffer.get()) >= 0;
    if (!divided || !made || !loaded || is_declared(gemm->c.buffer)) return loop_.body.size();
    result_.sum = gemm->c.buffer;
    result_.operand = gemm->a.buffer;
    return i - 1;
  }

  Reason add(std::size_t i) {
    const Stmt& s = loop_.body[i];
    const Effects& e = effects_[i];
    const auto* declared = as<Declare>(s);
    if (declared && declared->tile == result_.operand) return {};
    if (const int ring = declared ? roles_.ring_of(declared->tile.get()) : -1; ring >= 0) {
      result_.tiles.push_back(s);
      if (roles_.rings[static_cast<std::size_t>(ring)].depth > 1) return {};
      return {fmt::format("there is one slot of tile {}", named(*declared->tile)), "use smaller tiles"};
    }
    if (touches(e, result_.sum)) return add_to_all(s, e);
    if (touches(e, result_.operand)) {
      const auto* loop = as<For>(s);
      if (result_.made || !loop || loop->kind != LoopKind::parallel)
        return {fmt::format("tile {} is not made by one loop over its elements", named(*result_.operand)),
                ""};
      result_.made = s;
    } else {
      result_.own.push_back(s);
    }
    return reason_of_own(s, e);
  }

  // Only what one thread does with its own elements, and variables that are known without the step.
  Reason add_to_all(const Stmt& s, const Effects& e) {
    result_.all.push_back(s);
    const auto* loop = as<For>(s);
    const bool is_product = as<Gemm>(s) && as<Gemm>(s)->a.buffer == result_.operand;
    const bool by_elements = loop && loop->kind == LoopKind::parallel &&
                             std::all_of(e.regions.begin(), e.regions.end(), [&](const Region& r) {
                               return r.view->buffer == result_.sum ||
                                      (r.view->buffer->space == Space::fragment && !is_write(r.touch));
                             });
    if (!is_product && !by_elements)
      return {
          fmt::format("a step does more with sum {} than to scale it and add products", named(*result_.sum)),
          "do it after the loop"};
    for (const VariablePtr& v : e.used) {
      const bool of_step = std::any_of(effects_.begin(), effects_.end(), [&](const Effects& other) {
        return &other != &e &&
               std::find(other.defined.begin(), other.defined.end(), v) != other.defined.end();
      });
      if (of_step)
        return {fmt::format("what sum {} is scaled by is a variable of the step", named(*result_.sum)),
                "keep it in a fragment of rows"};
    }
    return {};
  }

  // It leaves nothing but fragments and the operand.
  Reason reason_of_own(const Stmt& s, const Effects& e) const {
    const auto* gemm = as<Gemm>(s);
    bool by_group = true;
    if (gemm) {
      const GemmPlan plan = plan_gemm(*gemm, threads_of_group, target_);
      by_group = plan.instruction == GemmInstruction::wgmma && !needs_promotion(*gemm, plan);
    }
    for_each_body(s, [&](const Body& inner) {
      for_each_stmt(inner, [&](const Stmt& n) { by_group &= !as<Gemm>(n) && !as<Declare>(n); });
    });
    if (!by_group) return {"a warp group alone cannot form a product of the step by wgmma", ""};
    const bool stays = !e.leaves && !e.reports && e.assigned.empty() &&
                       std::all_of(e.regions.begin(), e.regions.end(), [&](const Region& r) {
                         const BufferPtr& b = r.view->buffer;
                         return !is_write(r.touch) || b->space == Space::fragment || b == result_.operand;
                       });
    if (stays) return {};
    return {"a step writes more than fragments, or ends early", "write tensors after the loop"};
  }

  // What all groups do comes behind all that one does.
  Reason reason_of_order(std::size_t last) const {
    for (std::size_t i = 0; i < last; ++i) {
      if (std::find(result_.all.begin(), result_.all.end(), loop_.body[i]) == result_.all.end()) continue;
      for (std::size_t j = i + 1; j < last; ++j) {
        const bool is_own =
            std::find(result_.all.begin(), result_.all.end(), loop_.body[j]) == result_.all.end();
        if (is_own && conflict(effects_[i], effects_[j]))
          return {fmt::format("what sum {} is scaled by changes in the same step", named(*result_.sum)),
                  "keep the factors in a fragment of their own"};
      }
    }
    return {};
  }

  // The fragment of which the loop multiplies every element of the sum by one, as it is when the step is
  // over. Null where it does something else.
  BufferPtr factor_of(std::size_t loop, const BufferPtr& sum) const {
    const Body& body = as<For>(result_.own[loop])->body;
    const Store* product = nullptr;
    for (const Stmt& s : body) {
      const auto* store = as<Store>(s);
      if (store && store->to.view.buffer == sum) product = store;
    }
    for (std::size_t i = 0; product && i < body.size(); ++i) {
      const auto* load = as<Load>(body[i]);
      if (!load || load->from.view.buffer->rank() != 1 || load->from.view.buffer == sum ||
          load->from.view.buffer->space != Space::fragment ||
          !equal(load->from.index[0], product->to.index[0]))
        continue;
      const auto is_it = [&](const Expr& e) { return is_variable(e, load->variable); };
      if (!std::any_of(product->value->args.begin(), product->value->args.end(), is_it)) continue;
      const BufferPtr& factor = load->from.view.buffer;
      bool changes = false;
      for (std::size_t j = i + 1; j < body.size(); ++j) changes |= all_effects(body[j]).writes(factor);
      for (std::size_t j = loop + 1; j < result_.own.size(); ++j)
        changes |= all_effects(result_.own[j]).writes(factor);
      return changes ? nullptr : factor;
    }
    return nullptr;
  }

  // Sums of which each group may keep its own part.
  void find_apart() {
    for (const BufferPtr& sum : lane_sums(result_.own)) {
      if (is_declared(sum) || sum->rank() != 1) continue;
      ApartSum apart{sum, nullptr};
      int scalings = 0;
      for (std::size_t i = 0; i < result_.own.size(); ++i) {
        const auto* loop = as<For>(result_.own[i]);
        if (!loop || !all_effects(result_.own[i]).writes(sum)) continue;
        apart.factor = factor_of(i, sum);
        scalings += apart.factor ? 1 : 2;
      }
      if (scalings < 2) result_.apart.push_back(std::move(apart));
    }
  }

  bool is_apart(const BufferPtr& b) const {
    return std::any_of(result_.apart.begin(), result_.apart.end(),
                       [&](const ApartSum& own) { return own.sum == b; });
  }

  Reason collect_rows() {
    find_apart();
    std::vector<BufferPtr> read;
    for (const ApartSum& own : result_.apart)
      if (own.factor) read.push_back(own.factor);
    for (const Stmt& s : result_.all)
      for (const Region& r : all_effects(s).regions)
        if (r.view->buffer->space == Space::fragment && r.view->buffer != result_.sum)
          read.push_back(r.view->buffer);
    for (const Stmt& s : result_.own) {
      const Effects e = all_effects(s);
      for (const Region& r : e.regions) {
        const BufferPtr& b = r.view->buffer;
        const bool outlives = !is_declared(b) || contains(read, b);
        if (b->space != Space::fragment || !is_write(r.touch) || !outlives || contains(result_.rows, b) ||
            is_apart(b))
          continue;
        if (b->rank() != 1)
          return {fmt::format("fragment {} outlives the step, and is not of rows", named(*b)), ""};
        result_.rows.push_back(b);
        if (is_declared(b)) result_.rows_of_step.push_back(b);
      }
    }
    return {};
  }

  const For& loop_;
  const Roles& roles_;
  const CudaTarget& target_;
  std::vector<Effects> effects_;  // of the loop's statements
  std::vector<BufferPtr> declared_;
  StepShares result_;
};

}  // namespace

Planned<StepShares> step_shares(const For& loop, const Roles& roles, const CudaTarget& target) {
  if (roles.consumers != dealt_groups * threads_of_group || late_products(loop, roles, target))
    return Reason{};
  return Sharing(loop, roles, target).run();
}

}  // namespace tegula::passes

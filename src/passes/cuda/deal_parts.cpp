#include "passes/cuda/deal_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

int uses_of(const VariablePtr& v, const Body& body) {
  int count = 0;
  for (const Stmt& s : body)
    for_each_expr(s, [&](const Expr& e) {
      for_each_variable(e, [&](const VariablePtr& used) { count += used == v; });
    });
  return count;
}

// Whether the loop over elements does sum[i] = sum[i] + … and nothing else with the sum.
bool adds_by_elements(const For& loop, const Buffer* sum) {
  const Load* before = nullptr;
  const Store* after = nullptr;
  int touched = 0;
  for (const Stmt& s : loop.body) {
    for (const Region& r : all_effects(s).regions) touched += r.view->buffer.get() == sum;
    if (const auto* load = as<Load>(s); load && load->from.view.buffer.get() == sum) before = load;
    if (const auto* store = as<Store>(s); store && store->to.view.buffer.get() == sum) after = store;
  }
  if (!before || !after || touched != 2 || after->value->op != Op::add) return false;
  const std::vector<Expr>& terms = after->value->args;
  const bool has_before = is_variable(terms[0], before->variable) || is_variable(terms[1], before->variable);
  return has_before && uses_of(before->variable, loop.body) == 1 && same_place(before->from, after->to);
}

// Whether the statement, as far as it touches the sum, only adds to it.
bool only_adds(const Stmt& s, const BufferPtr& sum) {
  if (const auto* gemm = as<Gemm>(s))
    return gemm->c.buffer == sum && !gemm->overwrite && gemm->a.buffer != sum && gemm->b.buffer != sum;
  const auto* loop = as<For>(s);
  return loop && loop->kind == LoopKind::parallel && adds_by_elements(*loop, sum.get());
}

// What an element is given, made of what is loaded before.
using Value = std::function<Expr(const std::vector<Expr>& index, Body& before)>;

class PartsDealing {
 public:
  explicit PartsDealing(const Roles& roles)
      : roles_(roles), result_(roles), group_(new_variable("group", i32, VariableKind::index, {})) {}

  Planned<Roles> run() {
    const bool is_alone = roles_.consumers == threads_of_group && roles_.blocks_per_processor == 1;
    if (!is_alone || roles_.dealt || roles_.stores() || roles_.cluster() > 1 || !roles_.transposer.empty())
      return Reason{};
    if (const Reason reason = find_parts(); !parts_) return reason;
    const auto is_prefix = [](const Stmt& s) {
      return as<Let>(s) || as<Load>(s) || as<Assert>(s) || as<Exit>(s);
    };
    const auto begin = std::find_if_not(roles_.consumer.begin(), roles_.consumer.end(), is_prefix);
    Body divided;
    for (auto s = begin; s != roles_.consumer.end(); ++s) {
      const Body own = *s == loop_ ? dealt_loop() : Body{outside(*s)};
      divided.insert(divided.end(), own.begin(), own.end());
    }
    if (!reason_.why.empty()) return reason_;
    const Loc& at = loop_->at;
    const Stmt groups =
        statement(For{LoopKind::warp_groups, {group_}, {int32(0, at)}, {int32(groups_, at)}, 0, divided}, at);
    result_.consumer.assign(roles_.consumer.begin(), begin);
    result_.consumer.insert(result_.consumer.end(), tiles_.begin(), tiles_.end());
    result_.consumer.push_back(groups);
    dealt_.group = group_;
    dealt_.of_parts = true;
    result_.dealt = std::move(dealt_);
    return std::move(result_);
  }

 private:
  void fail(Reason reason) {
    if (reason_.why.empty()) reason_ = std::move(reason);
  }

  // The one loop of the block, and the parts of its steps.
  Reason find_parts() {
    int loops = 0;
    for_each_stmt(roles_.consumer, [&](const Stmt& s) {
      const auto* loop = as<For>(s);
      loops += loop && loop->kind == LoopKind::pipelined;
    });
    if (loops != 1) return {};
    for (const Stmt& s : roles_.consumer) {
      const auto* loop = as<For>(s);
      if (loop && loop->kind == LoopKind::pipelined) loop_ = s;
    }
    if (!loop_) return {};
    Stmt parts;
    for (const Stmt& s : as<For>(loop_)->body) {
      const auto* declared = as<Declare>(s);
      const bool is_tile = declared && roles_.ring_of(declared->tile.get()) >= 0;
      if (is_tile || as<Let>(s)) continue;
      if (parts || !are_parts(s)) return {};
      parts = s;
    }
    if (!parts) return {};
    if (const Reason reason = find_sums(*as<For>(parts)); !reason.why.empty()) return reason;
    parts_ = parts;
    groups_ = static_cast<int>(constant_value(as<For>(parts)->end[0]));
    result_.consumers = groups_ * threads_of_group;
    return {};
  }

  bool are_parts(const Stmt& s) const {
    const auto* loop = as<For>(s);
    if (!loop || loop->kind != LoopKind::unrolled || !is_constant(loop->begin[0], 0)) return false;
    const std::int64_t count = is_constant(loop->end[0]) ? constant_value(loop->end[0]) : 0;
    return count == 2 || count == 4;
  }

  Reason find_sums(const For& parts) {
    const Effects all = all_effects(parts.body);
    if (all.leaves || all.reports || !all.assigned.empty())
      return {"a part of a step does more than to add to sums", ""};
    const auto is_own = [&](const BufferPtr& b) {
      return std::find(all.declared.begin(), all.declared.end(), b) != all.declared.end();
    };
    for (const Region& r : all.regions) {
      const BufferPtr& b = r.view->buffer;
      if (!is_write(r.touch)) continue;
      if (is_own(b) ? b->space == Space::fragment : false) continue;
      if (b->space != Space::fragment || !b->type.is_floating())
        return {fmt::format("parts of a step write {}", named(*b)), "add to a fragment of floats"};
      if (std::find(sums_.begin(), sums_.end(), b) == sums_.end()) sums_.push_back(b);
    }
    for (const BufferPtr& sum : sums_) {
      for (const Stmt& s : parts.body) {
        const Effects own = all_effects(s);
        if ((own.reads(sum) || own.writes(sum)) && !only_adds(s, sum))
          return {fmt::format("a part of a step does more with sum {} than to add to it", named(*sum)),
                  "do it behind the loop"};
      }
    }
    return {};
  }

  Body dealt_loop() {
    const For& loop = *as<For>(loop_);
    For own = loop;
    own.body.clear();
    for (const Stmt& s : loop.body) {
      if (s != parts_) {
        own.body.push_back(s);
        continue;
      }
      const For& parts = *as<For>(s);
      const Body part = substitute(
          parts.body, {{parts.index[0], as_stored(variable(group_, s->at), parts.begin[0]->held())}});
      own.body.insert(own.body.end(), part.begin(), part.end());
    }
    Body result, added;
    for (const BufferPtr& sum : sums_) result.push_back(begun(sum));
    result.push_back(statement(std::move(own), loop_->at));
    for (const BufferPtr& sum : sums_) {
      const BufferPtr parts = new_parts(sum);
      result.push_back(left(sum, parts));
      added.push_back(sum_of(sum, parts));
    }
    // Neither leaves those of the next block before all have added these.
    dealt_.meetings.emplace(result.back().get(), Meeting::all);
    dealt_.meetings.emplace(added.back().get(), Meeting::all);
    result.insert(result.end(), added.begin(), added.end());
    return result;
  }

  BufferPtr new_parts(const BufferPtr& sum) {
    std::vector<Expr> shape = sum->shape;
    shape.insert(shape.begin(), int32(groups_, loop_->at));
    const BufferPtr parts = new_tile(sum->name.c_str(), Space::shared, sum->type, shape, loop_->at);
    tiles_.push_back(statement(Declare{parts}, loop_->at));
    dealt_.messages.insert(parts.get());
    dealt_.of_both.insert(parts.get());
    bytes_ += parts->elements() * parts->type.bytes();
    if (bytes_ > roles_.spare_bytes)
      fail({"shared memory has no space for the sums of warp groups", "use smaller tiles"});
    return parts;
  }

  Expr loaded(const BufferPtr& from, std::vector<Expr> index, Body& before) const {
    const VariablePtr x = new_variable("x", compute_type(from->type), VariableKind::let, loop_->at);
    before.push_back(statement(Load{x, {whole(from), std::move(index)}}, loop_->at));
    return variable(x, loop_->at);
  }

  std::vector<Expr> in_part(const Expr& part, const std::vector<Expr>& index) const {
    std::vector<Expr> result{part};
    result.insert(result.end(), index.begin(), index.end());
    return result;
  }

  // A loop over the elements of the sum that stores a value, made of what is loaded before it, to the element
  // or to the group's own of these parts.
  Stmt over_sum(const BufferPtr& sum, const BufferPtr& own_of, const Value& value) const {
    const Loc& at = loop_->at;
    return over_view(whole(sum), at,
                     [&](const std::vector<Expr>& index, const Access& element) {
                       Body body;
                       const Expr made = value(index, body);
                       const Access to =
                           own_of ? Access{whole(own_of), in_part(variable(group_, at), index)} : element;
                       body.push_back(statement(Store{to, as_stored(made, sum->type)}, at));
                       return body;
                     })
        .front();
  }

  // What sums hold before the first step is in the first group's.
  Stmt begun(const BufferPtr& sum) const {
    const Loc& at = loop_->at;
    return over_sum(sum, nullptr, [&](const std::vector<Expr>& index, Body& before) {
      const Expr old = loaded(sum, index, before);
      const Expr is_first = make(Op::eq, boolean, {variable(group_, at), int32(0, at)}, at);
      return make(Op::select, old->type, {is_first, old, constant(old->held(), 0.0, at)}, at);
    });
  }

  Stmt left(const BufferPtr& sum, const BufferPtr& parts) const {
    return over_sum(sum, parts,
                    [&](const std::vector<Expr>& index, Body& before) { return loaded(sum, index, before); });
  }

  Stmt sum_of(const BufferPtr& sum, const BufferPtr& parts) const {
    const Loc& at = loop_->at;
    return over_sum(sum, nullptr, [&](const std::vector<Expr>& index, Body& before) {
      Expr all = loaded(parts, in_part(int32(0, at), index), before);
      for (int group = 1; group < groups_; ++group)
        all = make(Op::add, all->type, {all, loaded(parts, in_part(int32(group, at), index), before)}, at);
      return all;
    });
  }

  Stmt outside(const Stmt& s) {
    const auto* loop = as<For>(s);
    if (as<If>(s) || as<While>(s) || (loop && loop->kind != LoopKind::parallel)) {
      Mapping mapping;
      mapping.body = [&](const Body& inner) {
        Body result;
        for (const Stmt& own : inner) result.push_back(outside(own));
        return result;
      };
      return map(s, mapping);
    }
    Reason reason;
    const Stmt result = by_first_group(s, group_, reason);
    if (!reason.why.empty()) fail(std::move(reason));
    return result;
  }

  const Roles& roles_;
  int groups_ = 0;
  Roles result_;
  const VariablePtr group_;
  Stmt loop_, parts_;
  std::vector<BufferPtr> sums_;
  DealtSteps dealt_;
  Body tiles_;  // of sums that groups leave
  std::int64_t bytes_ = 0;
  Reason reason_;
};

}  // namespace

Planned<Roles> deal_parts(const Roles& roles) { return PartsDealing(roles).run(); }

}  // namespace tegula::passes

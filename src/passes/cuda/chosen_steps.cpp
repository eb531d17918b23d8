#include "passes/cuda/chosen_steps.hpp"

#include <algorithm>
#include <optional>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

using IsGiven = std::function<bool(const Buffer&)>;

// What stands in front of a step, and decides whether it is taken.
struct Choice {
  Body values;         // lets and loads that it needs
  Expr leaves, taken;  // null: never, always
  Body step;
};

Expr both(const Expr& a, const Expr& b, const Loc& at) {
  return !a ? b : make(Op::logical_and, boolean, {a, b}, at);
}
Expr either(const Expr& a, const Expr& b, const Loc& at) {
  return !a ? b : make(Op::logical_or, boolean, {a, b}, at);
}
Expr negated(const Expr& a, const Loc& at) { return make(Op::logical_not, boolean, {a}, at); }

// Whether the expression has a value wherever it is computed, also for steps after the last one.
bool is_total(const Expr& e) {
  const bool divides = e->op == Op::div || e->op == Op::mod || e->op == Op::floordiv ||
                       e->op == Op::floormod || e->op == Op::ceildiv;
  if (divides && !e->type.is_floating() && (!is_constant(e->args[1]) || is_constant(e->args[1], 0)))
    return false;
  return std::all_of(e->args.begin(), e->args.end(), is_total);
}

bool is_value(const Stmt& s, const IsGiven& is_given) {
  bool total = true;
  for_each_expr(s, [&](const Expr& e) { total &= is_total(e); });
  if (!total) return false;
  const auto* load = as<Load>(s);
  return load ? !load->from.view.is_tile() && is_given(*load->from.view.buffer) : as<Let>(s) != nullptr;
}

// Whether the statement is one of tiles that the step alone uses: declares one, or clears one of those.
bool begins_tile(const Stmt& s, const Body& tiles) {
  if (as<Declare>(s)) return true;
  const auto* fill = as<Fill>(s);
  return fill && is_constant(fill->value) && std::any_of(tiles.begin(), tiles.end(), [&](const Stmt& own) {
           const auto* n = as<Declare>(own);
           return n && n->tile == fill->to.buffer;
         });
}

bool uses(const Effects& e, const VariablePtr& v) {
  return std::find(e.used.begin(), e.used.end(), v) != e.used.end();
}

std::optional<Choice> choice_of(const For& loop, const IsGiven& is_given) {
  Choice result;
  std::size_t values = 0;  // in front of the last condition
  Body tiles, rest = loop.body;
  for (;;) {
    std::size_t i = 0;
    for (; i < rest.size(); ++i) {
      const auto* leave = as<Break>(rest[i]);
      if (leave && !result.taken && is_total(leave->condition)) {
        result.leaves = either(result.leaves, leave->condition, rest[i]->at);
        values = result.values.size();
      } else if (is_value(rest[i], is_given)) {
        result.values.push_back(rest[i]);
      } else if (begins_tile(rest[i], tiles)) {
        tiles.push_back(rest[i]);
      } else {
        break;
      }
    }
    const auto* branch = i + 1 == rest.size() ? as<If>(rest[i]) : nullptr;
    const Stmt around = branch ? rest[i] : nullptr;
    rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(i));
    if (!branch || !branch->otherwise.empty() || !branch->of_rows.empty() || !is_total(branch->condition))
      break;
    result.taken = both(result.taken, branch->condition, around->at);
    values = result.values.size();
    rest = Body(branch->then);
  }
  result.step = std::move(tiles);
  result.step.insert(result.step.end(), result.values.begin() + static_cast<std::ptrdiff_t>(values),
                     result.values.end());
  result.step.insert(result.step.end(), rest.begin(), rest.end());
  result.values.resize(values);
  if (!result.leaves && !result.taken) return std::nullopt;
  return result;
}

bool declares_shared(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const Stmt& s) {
    const auto* n = as<Declare>(s);
    return n && n->tile->space == Space::shared;
  });
}

// Whether no step changes what the choice of others depends on.
bool is_free(const Choice& choice, const For& loop) {
  const Effects step = all_effects(loop.body), values = all_effects(choice.values);
  return std::none_of(step.assigned.begin(), step.assigned.end(), [&](const VariablePtr& v) {
    bool found = uses(values, v);
    for (const Expr& e : {choice.leaves, choice.taken})
      if (e) for_each_variable(e, [&](const VariablePtr& own) { found |= own == v; });
    return found;
  });
}

class Chosen {
 public:
  Chosen(const For& loop, Choice choice, const Loc& at)
      : loop_(loop),
        choice_(std::move(choice)),
        at_(at),
        type_(loop.index[0]->type),
        next_(new_variable("next", type_, VariableKind::mutable_, at)),
        more_(new_variable("more", boolean, VariableKind::mutable_, at)) {
    const Effects step = all_effects(choice_.step);
    for (const Stmt& s : choice_.values) {
      const VariablePtr& v = defined_by(s);
      if (uses(step, v))
        carried_.emplace_back(v,
                              new_variable(("next_" + v->name).c_str(), v->type, VariableKind::mutable_, at));
    }
  }

  Body run(StoreForms& forms) const {
    Body result{statement(DeclareVar{next_, loop_.begin[0]}, at_),
                statement(DeclareVar{more_, constant(boolean, 0, at_)}, at_)};
    for (const auto& [own, next] : carried_)
      result.push_back(statement(DeclareVar{next, zero(own->type)}, at_));
    for (const Stmt& s : found()) result.push_back(s);
    For steps = loop_;
    steps.index = {
        new_variable(loop_.index[0]->name.c_str(), type_, VariableKind::index, loop_.index[0]->at)};
    steps.body = step(forms);
    result.push_back(statement(std::move(steps), at_));
    return result;
  }

 private:
  static const VariablePtr& defined_by(const Stmt& s) {
    const auto* load = as<Load>(s);
    return load ? load->variable : as<Let>(s)->variable;
  }
  Expr zero(DType type) const {
    return type.is_floating() ? constant(type, 0.0, at_) : constant(type, 0, at_);
  }
  VariablePtr let(Body& to, const char* name, DType type, const Expr& value) const {
    const VariablePtr v = new_variable(name, type, VariableKind::let, at_);
    to.push_back(statement(Let{v, value}, at_));
    return v;
  }
  Stmt assigned(const VariablePtr& v, const Expr& value) const { return statement(Assign{v, value}, at_); }

  // The values of step `next`, whether it is in the loop, and where a branch may leave it out, what comes
  // then.
  Body test(const VariablePtr& seeks) const {
    Body result;
    const Expr at = variable(let(result, "step", type_, variable(next_, at_)), at_);
    Substitution own{{loop_.index[0], at}};
    for (const Stmt& s : choice_.values) {
      const Stmt there = substitute(Body{s}, own)[0];
      const VariablePtr& old = defined_by(s);
      const VariablePtr v = new_variable(old->name.c_str(), old->type, VariableKind::let, old->at);
      if (const auto* load = as<Load>(there))
        result.push_back(statement(Load{v, load->from}, s->at));
      else
        result.push_back(statement(Let{v, as<Let>(there)->value}, s->at));
      own.emplace(old, variable(v, s->at));
      for (const auto& [step, next] : carried_)
        if (step == old) result.push_back(assigned(next, variable(v, s->at)));
    }
    Expr stays = make(Op::lt, boolean, {at, loop_.end[0]}, at_);
    if (choice_.leaves) stays = both(stays, negated(substitute(choice_.leaves, own), at_), at_);
    const Expr inside = variable(let(result, "inside", boolean, stays), at_);
    result.push_back(assigned(more_, inside));
    if (!choice_.taken) return result;
    const Expr over = both(inside, negated(substitute(choice_.taken, own), at_), at_);
    const Expr passed = variable(let(result, "passed", boolean, over), at_);
    result.push_back(assigned(seeks, passed));
    const Expr behind = make(Op::add, type_, {at, constant(type_, 1, at_)}, at_);
    result.push_back(assigned(next_, make(Op::select, type_, {passed, behind, at}, at_)));
    return result;
  }

  Body found() const {
    if (!choice_.taken) return test(nullptr);
    const VariablePtr seeks = new_variable("seeks", boolean, VariableKind::mutable_, at_);
    Body goes_on;
    const Expr on = variable(let(goes_on, "seeking", boolean, variable(seeks, at_)), at_);
    return {statement(DeclareVar{seeks, constant(boolean, 1, at_)}, at_),
            statement(While{std::move(goes_on), on, test(seeks)}, at_)};
  }

  // The next step is looked for under the products that the step begins with.
  std::size_t place_of_search() const {
    const auto is_product = [](const Stmt& s) { return as<Gemm>(s) != nullptr; };
    auto at = std::find_if(choice_.step.begin(), choice_.step.end(), is_product);
    const auto loads_or_multiplies = [](const Stmt& s) {
      return as<Gemm>(s) || as<Declare>(s) || as<Let>(s) || as<Load>(s) || as<Fill>(s) || as<Copy>(s);
    };
    while (at != choice_.step.end() && loads_or_multiplies(*at)) ++at;
    return static_cast<std::size_t>(at - choice_.step.begin());
  }

  Body step(StoreForms& forms) const {
    Body result;
    const Expr more = variable(let(result, "more", boolean, variable(more_, at_)), at_);
    result.push_back(statement(Break{negated(more, at_)}, at_));
    const Expr own = variable(let(result, loop_.index[0]->name.c_str(), type_, variable(next_, at_)), at_);
    for (const auto& [step, next] : carried_)
      result.push_back(statement(Let{step, variable(next, at_)}, at_));
    const Body all = passes::substitute(choice_.step, {{loop_.index[0], own}}, forms);
    const auto place = static_cast<std::ptrdiff_t>(place_of_search());
    result.insert(result.end(), all.begin(), all.begin() + place);
    result.push_back(assigned(next_, make(Op::add, type_, {own, constant(type_, 1, at_)}, at_)));
    for (const Stmt& s : found()) result.push_back(s);
    result.insert(result.end(), all.begin() + place, all.end());
    return result;
  }

  const For& loop_;
  const Choice choice_;
  const Loc at_;
  const DType type_;
  const VariablePtr next_, more_;
  std::vector<std::pair<VariablePtr, VariablePtr>> carried_;  // of the step, and of the next one
};

}  // namespace

Body with_chosen_steps(const Body& body, const IsGiven& is_given, StoreForms& forms) {
  return map_body(body, [&](const Stmt& s) -> Body {
    const auto* loop = as<For>(s);
    if (!loop || loop->kind != LoopKind::pipelined) return {s};
    auto choice = choice_of(*loop, is_given);
    if (!choice || !declares_shared(choice->step) || !is_free(*choice, *loop)) return {s};
    return Chosen(*loop, std::move(*choice), s->at).run(forms);
  });
}

VariablePtr goes_on(const For& loop) {
  if (loop.kind != LoopKind::pipelined || loop.body.size() < 2) return nullptr;
  const auto* more = as<Let>(loop.body[0]);
  const auto* leave = as<Break>(loop.body[1]);
  if (!more || !leave || more->value->op != Op::variable || leave->condition->op != Op::logical_not)
    return nullptr;
  const VariablePtr& v = more->value->variable;
  const bool same = leave->condition->args[0]->variable == more->variable;
  return same && v->kind == VariableKind::mutable_ ? v : nullptr;
}

Body without_leaving(const For& loop, const Body& begin_of_step) {
  Body result = begin_of_step;
  if (goes_on(loop))
    std::erase_if(result, [&](const Stmt& s) { return s == loop.body[0] || s == loop.body[1]; });
  return result;
}

bool is_of_variables(const Stmt& s) {
  if (as<Declare>(s)) return false;
  const Effects e = all_effects(s);
  return !e.reports && e.declared.empty() &&
         std::none_of(e.regions.begin(), e.regions.end(),
                      [](const Region& r) { return is_write(r.touch) || r.view->is_tile(); });
}

bool has_break(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const Stmt& s) {
    const auto* branch = as<If>(s);
    return as<Break>(s) || (branch && (has_break(branch->then) || has_break(branch->otherwise)));
  });
}

}  // namespace tegula::passes

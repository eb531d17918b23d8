#include "passes/cuda/existing_rows.hpp"

#include <algorithm>

#include "ir/affine.hpp"
#include "ir/lists.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

class Choices {
 public:
  explicit Choices(const For& loop) : loop_(loop) {
    for (const Stmt& s : loop.body)
      for_each_definition(s, [&](const VariablePtr& v) { found_.push_back(v); });
  }

  // In place of a node of an expression, whose operands have been decided.
  Expr decided(const Expr& e) {
    if (e->op != Op::select || is_found(e->args[1]) || is_found(e->args[2])) return e;
    if (is_inside(e->args[1]) || is_inside(e->args[2])) return e;
    const Expr last = met_last(e->args[0]);
    if (!last) return e;
    conditions.push_back(last);
    return e->args[1];
  }

  std::vector<Expr> conditions;

 private:
  bool is_found(const Expr& e) const {
    bool result = false;
    for_each_variable(e, [&](const VariablePtr& v) {
      result |= std::find(found_.begin(), found_.end(), v) != found_.end();
    });
    return result;
  }
  bool is_inside(const Expr& e) const {
    return std::any_of(loop_.index.begin(), loop_.index.end(),
                       [&](const VariablePtr& v) { return uses(e, v); });
  }

  // The condition for the row that meets it last; null if there is no such row.
  Expr met_last(const Expr& e) const {
    const bool less = e->op == Op::lt || e->op == Op::le;
    if (!less && e->op != Op::gt && e->op != Op::ge) return nullptr;
    if (is_found(e) || uses(e, loop_.index.back()) || !is_inside(e)) return nullptr;
    const Expr &a = e->args[0], &b = e->args[1];
    if (!goes_by_row(loop_, a) || is_inside(b)) return nullptr;
    return with_args(e, {at_row(a, less), b});
  }

  Expr at_row(const Expr& e, bool last) const {
    Substitution by;
    for (std::size_t d = 0; d + 1 < loop_.index.size(); ++d) {
      const Expr& end = loop_.end[d];
      by.emplace(loop_.index[d], constant(end->held(), last ? constant_value(end) - 1 : 0));
    }
    return substitute(e, by);
  }

  const For& loop_;
  std::vector<VariablePtr> found_;  // by the loop's body
};

}  // namespace

bool goes_by_row(const For& loop, const Expr& e) {
  if (!has_affine_form(e->held())) return false;
  for (const Affine::Term& term : affine(e).terms) {
    const bool is_index = term.atom->op == Op::variable && contains(loop.index, term.atom->variable);
    if (is_index && term.factor < 0) return false;
    if (is_index) continue;
    for (const VariablePtr& v : loop.index)
      if (uses(term.atom, v)) return false;
  }
  return true;
}

ExistingRows existing_rows(const RowConversion& plan) {
  const For& loop = *as<For>(plan.loop);
  Choices choices(loop);
  Mapping mapping;
  mapping.expr = [&](const Expr& e) { return rewrite(e, [&](const Expr& x) { return choices.decided(x); }); };
  ExistingRows result{plan, {}};
  For own = loop;
  own.body = map(loop.body, mapping);
  result.rows.loop = statement(std::move(own), plan.loop->at);
  result.conditions = std::move(choices.conditions);
  return result;
}

}  // namespace tegula::passes

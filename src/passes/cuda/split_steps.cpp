#include "passes/cuda/split_steps.hpp"

#include <algorithm>
#include <unordered_set>

#include "ir/affine.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// What is larger than zero exactly where the comparison holds.
std::optional<Affine> positive_where(const Expr& condition) {
  if (condition->args.size() != 2 || !has_affine_form(condition->args[0]->type)) return std::nullopt;
  const Affine a = affine(condition->args[0]), b = affine(condition->args[1]);
  const bool less = condition->op == Op::lt || condition->op == Op::le;
  if (!less && condition->op != Op::gt && condition->op != Op::ge) return std::nullopt;
  std::optional<Affine> result = less ? difference(b, a) : difference(a, b);
  if (result && (condition->op == Op::le || condition->op == Op::ge)) ++result->constant;
  return result;
}

// The same of an equality that holds in the last step and in no other: `index - last + 1`.
std::optional<Affine> positive_in_last_step(const Expr& condition, const For& loop) {
  if (condition->op != Op::eq || !has_affine_form(condition->args[0]->type)) return std::nullopt;
  const DType type = loop.begin[0]->held();
  const Affine last = affine(make(Op::sub, type, {loop.end[0], constant(type, 1)}, condition->at)),
               from_last = sum(affine(variable(loop.index[0], condition->at)), last, -1).value_or(last);
  for (const bool turned : {false, true}) {
    const Expr &a = condition->args[turned ? 1 : 0], &b = condition->args[turned ? 0 : 1];
    std::optional<Affine> result = difference(affine(a), affine(b));
    if (!result || !equal(*result, from_last)) continue;
    ++result->constant;
    return result;
  }
  return std::nullopt;
}

std::unordered_set<const Variable*> defined_in(const Body& body) {
  std::unordered_set<const Variable*> result;
  for_each_stmt(body, [&](const Stmt& s) {
    for_each_definition(s, [&](const VariablePtr& v) { result.insert(v.get()); });
  });
  return result;
}

// The first step at which `factor · index + rest` is positive.
Expr first_step(const Affine& sum, const For& loop, const Loc& at) {
  const VariablePtr& index = loop.index[0];
  const auto inner = defined_in(loop.body);
  Affine rest{{}, -sum.constant};
  std::int64_t factor = 0;
  for (const Affine::Term& term : sum.terms) {
    if (term.atom->op == Op::variable && term.atom->variable == index) {
      factor = term.factor;
      continue;
    }
    bool changes = uses(term.atom, index);
    for_each_variable(term.atom, [&](const VariablePtr& v) { changes |= inner.contains(v.get()); });
    if (changes) return nullptr;
    rest.terms.push_back({term.atom, -term.factor});
  }
  const DType type = loop.begin[0]->held();
  const Expr bound = factor > 0 ? to_expr(rest, type, at) : nullptr;
  if (!bound || bound->held() != type) return nullptr;
  const Expr last = make(Op::floordiv, type, {bound, constant(type, factor)}, at);
  return make(Op::add, type, {last, constant(type, 1)}, at);
}

// The only branch of the body, if what it does is plain.
std::size_t only_branch(const Body& body) {
  std::size_t result = body.size();
  for (std::size_t i = 0; i < body.size(); ++i) {
    const auto* branch = as<If>(body[i]);
    if (!branch) continue;
    if (result != body.size() || !branch->otherwise.empty()) return body.size();
    result = i;
  }
  return result;
}

// Products of so few rows or columns wait for their other operands: a second text of the loop would be
// fetched for longer than a branch takes.
bool has_few_sums(const Body& body) {
  constexpr std::int64_t few = 16;
  bool some = false, all = true;
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* gemm = as<Gemm>(s);
    if (!gemm) return;
    some = true;
    all &= std::min(gemm->c.extent(0), gemm->c.extent(1)) <= few;
  });
  return some && all;
}

}  // namespace

std::optional<SplitSteps> split_steps(const For& loop, const Loc& at) {
  if (has_few_sums(loop.body)) return std::nullopt;
  const std::size_t place = only_branch(loop.body);
  if (place == loop.body.size()) return std::nullopt;
  const auto& branch = *as<If>(loop.body[place]);
  std::optional<Affine> sum = positive_where(branch.condition);
  if (!sum) sum = positive_in_last_step(branch.condition, loop);
  const Expr middle = sum ? first_step(*sum, loop, at) : nullptr;
  if (!middle) return std::nullopt;
  const DType type = loop.begin[0]->held();
  SplitSteps result{loop, loop};
  const auto begin = result.before.body.begin() + static_cast<std::ptrdiff_t>(place);
  result.before.body.erase(begin);
  result.before.end[0] = make(Op::min, type, {loop.end[0], middle}, at);
  Body& behind = result.behind.body;
  behind.erase(behind.begin() + static_cast<std::ptrdiff_t>(place));
  behind.insert(behind.begin() + static_cast<std::ptrdiff_t>(place), branch.then.begin(), branch.then.end());
  const VariablePtr index =
      new_variable(loop.index[0]->name.c_str(), loop.index[0]->type, loop.index[0]->kind, at);
  result.behind.index[0] = index;
  result.behind.begin[0] = make(Op::max, type, {loop.begin[0], middle}, at);
  behind = substitute(behind, {{loop.index[0], variable(index, at)}});
  return result;
}

}  // namespace tegula::passes

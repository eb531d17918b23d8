#include "ir/opposite.hpp"
#include "ir/rules.hpp"

namespace tegula::ir {
namespace {

// The right side does not count where the left decides, so either may be dropped with what is invalid in it.
Expr both(const Expr& e, const Facts&) {
  const Expr &a = e->args[0], &b = e->args[1];
  if (is_constant(a, 1) || is_constant(b, 0)) return b;
  if (is_constant(b, 1) || is_constant(a, 0) || equal(a, b)) return a;
  return nullptr;
}

Expr either(const Expr& e, const Facts&) {
  const Expr &a = e->args[0], &b = e->args[1];
  if (is_constant(a, 0) || is_constant(b, 1)) return b;
  if (is_constant(b, 0) || is_constant(a, 1) || equal(a, b)) return a;
  return nullptr;
}

// With a NaN both an order and its opposite are false.
Expr negation(const Expr& e, const Facts&) {
  const Expr& a = e->args[0];
  if (a->op == Op::logical_not) return a->args[0];
  if (a->op < Op::eq || a->op > Op::ge) return nullptr;
  const bool has_opposite = a->op <= Op::ne || !a->args[0]->held().is_floating();
  return has_opposite ? make(opposite(a->op), boolean, a->args, e->at) : nullptr;
}

Expr choice(const Expr& e, const Facts&) {
  const Expr &condition = e->args[0], &a = e->args[1], &b = e->args[2];
  if (is_constant(condition)) return condition->integer != 0 ? a : b;
  if (equal(a, b)) return a;
  if (condition->op == Op::logical_not) return make(Op::select, e->type, {condition->args[0], b, a}, e->at);
  if (!e->type.is_boolean()) return nullptr;
  if (is_constant(a, 1) && is_constant(b, 0)) return condition;
  if (is_constant(a, 0) && is_constant(b, 1)) return make(Op::logical_not, boolean, {condition}, e->at);
  return nullptr;
}

// Equal values, where no NaN can be.
Expr same_sides(const Expr& e, const Facts&) {
  if (e->args[0]->held().is_floating() || !equal(e->args[0], e->args[1])) return nullptr;
  return truth(e->op == Op::eq || e->op == Op::le || e->op == Op::ge, e->at);
}

const RewriteRule logic_table[] = {
    {"and", Op::logical_and, Op::logical_and, both},     {"or", Op::logical_or, Op::logical_or, either},
    {"not", Op::logical_not, Op::logical_not, negation}, {"select", Op::select, Op::select, choice},
    {"compare with itself", Op::eq, Op::ge, same_sides},
};

}  // namespace

std::span<const RewriteRule> logic_rules() { return logic_table; }

}  // namespace tegula::ir

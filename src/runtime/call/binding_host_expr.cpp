#include <algorithm>

#include "runtime/call/binding.hpp"
#include "tegula/error.hpp"

namespace tegula {

using ir::Op;

HostExpr::HostExpr(const ir::Expr& e, const Signature& signature, std::span<const ir::VariablePtr> more) {
  add(e, signature, more);
}

void HostExpr::add(const ir::Expr& e, const Signature& signature, std::span<const ir::VariablePtr> more) {
  for (const ir::Expr& arg : e->args) add(arg, signature, more);
  Step step{e->op, e->type};
  if (e->op == Op::constant) step.value = ir::value_of(e);
  if (e->op == Op::variable) {
    step.position = signature.position_of(e->variable.get());
    const auto found = std::find(more.begin(), more.end(), e->variable);
    if (step.position < 0 && found != more.end())
      step.position = static_cast<int>(signature.variables().size()) + static_cast<int>(found - more.begin());
    internal_assert(step.position >= 0, "a value known at the call is expected here", e->at);
  }
  steps_.push_back(step);
}

ir::Value HostExpr::operator()(std::span<const ir::Value> values, bool* overflow) const {
  std::vector<ir::Value> stack;
  stack.reserve(steps_.size());
  for (const Step& step : steps_) {
    if (step.op == Op::constant)
      stack.push_back(step.value);
    else if (step.op == Op::variable)
      stack.push_back(values[static_cast<std::size_t>(step.position)]);
    else {
      const auto arity = static_cast<std::size_t>(ir::arity_of(step.op));
      const ir::Value result = ir::apply(step.op, step.type, std::span(stack).last(arity), overflow);
      stack.resize(stack.size() - arity);
      stack.push_back(result);
    }
  }
  return stack.back();
}

}  // namespace tegula

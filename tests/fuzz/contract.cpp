// Whether a program keeps the contracts of its places, so that its outputs are comparable.
#include <fmt/format.h>

#include "fuzz/program.hpp"
#include "ir/print.hpp"
#include "ir/visit.hpp"

namespace tegula::fuzz {
namespace {

using namespace ir;

class Checker {
 public:
  explicit Checker(const Program& program) : program_(program) {}

  std::string run() {
    for_each_stmt(*program_.kernel, [this](const Stmt& stmt) { statement(stmt); });
    return broken_;
  }

 private:
  void fail(const Stmt& stmt, const std::string& what) {
    if (broken_.empty()) broken_ = fmt::format("{} in\n{}", what, ir::print(stmt));
  }

  Nature nature(const Expr& e, const Stmt& stmt) {
    if (e->op == Op::constant) return of_constant(*e);
    if (e->op == Op::variable) {
      const auto found = program_.contracts.variables.find(e->variable.get());
      return found == program_.contracts.variables.end() ? anything(e->held()) : found->second;
    }
    std::vector<Nature> args;
    for (const Expr& arg : e->args) args.push_back(nature(arg, stmt));
    const Result result = result_of(*e, args);
    if (result.diverges) fail(stmt, "executors may disagree about " + ir::print(e));
    return result.nature;
  }

  const Nature& of(const View& view) const { return program_.contracts.buffers.at(view.buffer.get()); }

  // Ranges of integers are the interpreter's to check.
  void flows(const Nature& from, const Nature& to, DType type, const Stmt& stmt) {
    if (type.is_floating() && !fits(from, to, type))
      fail(stmt, fmt::format("{} where only {} may be", describe(from, type), describe(to, type)));
  }
  void flows(const View& from, const View& to, const Stmt& stmt) {
    flows(stored(of(from), from.buffer->type), of(to), to.buffer->type, stmt);
  }

  void statement(const Stmt& stmt) {
    for_each_expr(stmt, [&](const Expr& e) {
      if (!nature(e, stmt).is_exact() && !as<Let>(stmt) && !as<Store>(stmt) && !as<Assign>(stmt) &&
          !as<DeclareVar>(stmt) && !as<Fill>(stmt))
        fail(stmt, "an inexact value decides");
    });
    if (const auto* n = as<Let>(stmt)) assigned(n->variable, n->value, stmt);
    if (const auto* n = as<DeclareVar>(stmt)) assigned(n->variable, n->value, stmt);
    if (const auto* n = as<Assign>(stmt)) assigned(n->variable, n->value, stmt);
    if (const auto* n = as<Store>(stmt))
      flows(nature(n->value, stmt), of(n->to.view), n->to.view.buffer->type, stmt);
    if (const auto* n = as<Fill>(stmt)) flows(nature(n->value, stmt), of(n->to), n->to.buffer->type, stmt);
    if (const auto* n = as<Copy>(stmt)) flows(n->from, n->to, stmt);
    if (const auto* n = as<Gather>(stmt)) flows(n->from, n->to, stmt);
    operation(stmt);
    if (const auto* n = as<Load>(stmt))
      flows(of(n->from.view), program_.contracts.variables.at(n->variable.get()), n->from.view.buffer->type,
            stmt);
  }
  // Sums in any order are of dyadic numbers.
  void operation(const Stmt& stmt) {
    const auto sum = [&](const Nature& term, const View& to, const char* what) {
      if (to.buffer->type.is_floating() && (!term.dyadic || !of(to).dyadic)) fail(stmt, what);
    };
    const auto combined = [&](AtomicOp op, const Nature& term, const View& to, bool ordered) {
      if (op == AtomicOp::add && !ordered) return sum(term, to, "a sum in any order is not exact");
      flows(term, of(to), to.buffer->type, stmt);
    };
    if (const auto* n = as<Gemm>(stmt)) {
      sum(of(n->a), n->c, "a product is not exact");
      sum(of(n->b), n->c, "a product is not exact");
    }
    if (const auto* n = as<Reduce>(stmt)) {
      if (n->op == ReduceOp::sum) sum(of(n->from), n->to, "a sum is not exact");
      if (n->op != ReduceOp::sum) flows(n->from, n->to, stmt);
    }
    if (const auto* n = as<Scan>(stmt)) {
      if (n->op == ReduceOp::sum) sum(of(n->from), n->to, "a running sum is not exact");
      if (n->op != ReduceOp::sum) flows(n->from, n->to, stmt);
    }
    if (const auto* n = as<Accumulate>(stmt)) combined(n->op, of(n->tile), n->to, n->order != nullptr);
    if (const auto* n = as<Atomic>(stmt)) combined(n->op, nature(n->value, stmt), n->to.view, false);
  }

  void assigned(const VariablePtr& v, const Expr& value, const Stmt& stmt) {
    flows(nature(value, stmt), program_.contracts.variables.at(v.get()), v->type, stmt);
  }

  const Program& program_;
  std::string broken_;
};

}  // namespace

std::string broken_contract(const Program& program) { return Checker(program).run(); }

std::string print(const Program& program) {
  std::string text = ir::print(*program.kernel);
  for (std::size_t at; (at = text.find("  // :0")) != std::string::npos;) text.erase(at, 7);
  for (std::size_t i = 0; i < program.arguments.size(); ++i) {
    const Given& given = program.arguments[i];
    const Parameter& parameter = program.kernel->parameters[i];
    if (given.is_tensor) {
      text +=
          fmt::format("// {}: {}, {}\n", parameter.tensor->name, describe(given.tensor.ref()),
                      describe(program.contracts.buffers.at(parameter.tensor.get()), parameter.tensor->type));
    } else {
      std::visit([&](auto n) { text += fmt::format("// {} = {}\n", parameter.scalar->name, n); },
                 given.number);
    }
  }
  return text;
}

}  // namespace tegula::fuzz

#include "passes/plain_control.hpp"

#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool is_loop_of_block(const For& loop) {
  return loop.kind == LoopKind::serial || loop.kind == LoopKind::unrolled || loop.kind == LoopKind::pipelined;
}

}  // namespace

bool has_one_step(const For& loop) {
  return is_loop_of_block(loop) && is_constant(loop.begin[0]) && is_constant(loop.end[0]) &&
         constant_value(loop.end[0]) - constant_value(loop.begin[0]) == 1;
}

Body without_single_steps(const Body& body) {
  return map_body(body, [](const Stmt& s) -> Body {
    const auto* loop = as<For>(s);
    if (!loop || !has_one_step(*loop) || all_effects(loop->body).leaves) return {s};
    return substitute(loop->body, {{loop->index[0], loop->begin[0]}});
  });
}

Body with_one_part(const Body& body, const std::function<bool(const Stmt&)>& wanted) {
  return map_body(body, [&](const Stmt& s) -> Body {
    const auto* branch = as<If>(s);
    if (!branch || !branch->of_rows.empty()) return {s};
    bool found = false;
    for_each_stmt(branch->otherwise, [&](const Stmt& n) { found |= wanted(n); });
    if (!found) return {s};
    const Expr opposite = make(Op::logical_not, boolean, {branch->condition}, s->at);
    return {statement(If{branch->condition, branch->then, {}}, s->at),
            statement(If{opposite, branch->otherwise, {}}, s->at)};
  });
}

}  // namespace tegula::passes

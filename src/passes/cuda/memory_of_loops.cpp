#include "passes/cuda/memory_of_loops.hpp"

#include <algorithm>
#include <cstdlib>

#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// Whether the index is multiplied by a number that is not known to be small.
bool is_multiplied(const Expr& e, const VariablePtr& index) {
  constexpr std::int64_t small = 4;  // neighbours still share a sector of memory
  if (e->op == Op::mul && uses(e, index)) {
    const auto is_small = [](const Expr& factor) {
      return is_constant(factor) && std::abs(constant_value(factor)) < small;
    };
    if (std::none_of(e->args.begin(), e->args.end(), is_small)) return true;
  }
  return std::any_of(e->args.begin(), e->args.end(),
                     [&](const Expr& inner) { return is_multiplied(inner, index); });
}

}  // namespace

bool is_spread(const For& loop, const Access& access) {
  return !access.view.buffer->shape.empty() && !loop.index.empty() &&
         is_multiplied(coordinates(access).back(), loop.index.back());
}

bool touches_memory(const For& loop) {
  bool found = false;
  for_each_stmt(loop.body, [&](const Stmt& s) {
    for_each_view(s, [&](const View& view) { found |= view.buffer->space != Space::fragment; });
  });
  return found;
}

int along_stored_rows(const For& loop) {
  int found = -1;
  for_each_stmt(loop.body, [&](const Stmt& s) {
    const auto* store = as<Store>(s);
    if (!store || store->to.view.buffer->space != Space::global || store->to.view.buffer->shape.empty())
      return;
    if (found < 0) found = static_cast<int>(loop.index.size()) - 1;
    const Expr column = coordinates(store->to).back();
    for (std::size_t i = 0; i < loop.index.size(); ++i)
      if (uses(column, loop.index[i])) found = static_cast<int>(i);
  });
  return found;
}

}  // namespace tegula::passes

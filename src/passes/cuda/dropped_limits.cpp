#include "passes/cuda/dropped_limits.hpp"

#include "ir/dropped_rows.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/plan_copies.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// The copy engine could bring the tile, but for a limit.
bool is_cut(const Stmt& s) {
  const auto* copy = as<Copy>(s);
  const bool is_load = copy && copy->to.is_tile() && copy->to.buffer->space == Space::shared;
  return is_load && plan_copy(*copy, true) && limits_may_cut(*copy);
}

Body without_limits(const Body& body) {
  bool any = false;
  for_each_stmt(body, [&](const Stmt& s) { any |= is_cut(s); });
  if (!any) return body;
  const Values values(body);
  return map_body(body, [&](const Stmt& s) -> Body {
    if (!is_cut(s) || !drops_what_is_cut(body, values, *as<Copy>(s))) return {s};
    Copy copy = *as<Copy>(s);
    copy.any_beyond_limits = true;
    return {statement(std::move(copy), s->at)};
  });
}

}  // namespace

Kernel drop_limits(const Kernel& kernel, const CudaTarget& target) {
  if (!target.has_wgmma() || !target.copy_engine) return kernel;
  return map_grids(kernel, [](const Grid& grid) { return without_limits(grid.body); });
}

}  // namespace tegula::passes

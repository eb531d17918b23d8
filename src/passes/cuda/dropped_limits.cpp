#include "passes/cuda/dropped_limits.hpp"

#include <unordered_map>

#include "ir/dropped_rows.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/plan_copies.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// Copies that the copy engine can make, but for a limit, and whether each stands in a loop.
using Loads = std::unordered_map<const StmtNode*, bool>;

void find_loads(const Body& body, bool in_loop, Loads& loads) {
  for (const Stmt& s : body) {
    const auto* copy = as<Copy>(s);
    if (copy && copy->to.is_tile() && copy->to.buffer->space == Space::shared && plan_copy(*copy, true))
      loads.emplace(s.get(), in_loop);
    for_each_body(s, [&](const Body& inner) { find_loads(inner, in_loop || as<For>(s), loads); });
  }
}

Body marked(const Body& body) {
  Loads loads;
  find_loads(body, false, loads);
  if (loads.empty()) return body;
  const Values values(body);
  return map_body(body, [&](const Stmt& s) -> Body {
    const auto load = loads.find(s.get());
    if (load == loads.end()) return {s};
    Copy copy = *as<Copy>(s);
    copy.any_beyond_limits = limits_may_cut(copy) && drops_what_is_cut(body, values, copy);
    // What is brought once is not worth a branch.
    copy.any_outside = load->second && drops_rows_outside(body, values, copy);
    return {statement(std::move(copy), s->at)};
  });
}

}  // namespace

Kernel drop_limits(const Kernel& kernel, const CudaTarget& target) {
  if (!target.has_wgmma() || !target.copy_engine) return kernel;
  return map_grids(kernel, [](const Grid& grid) { return marked(grid.body); });
}

}  // namespace tegula::passes

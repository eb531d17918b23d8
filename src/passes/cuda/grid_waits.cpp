#include "passes/cuda/grid_waits.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

struct Use {
  bool reads = false, writes = false;
};

// The tensors that a grid touches.
using Touched = std::map<const Buffer*, Use>;

Touched touched_by(const Grid& grid, const std::map<const Buffer*, const Buffer*>& same_memory) {
  Touched result;
  const Effects all = all_effects(grid.body);
  for (const Region& region : all.regions) {
    const Buffer* buffer = region.view->buffer.get();
    if (buffer->is_tile()) continue;
    if (const auto other = same_memory.find(buffer); other != same_memory.end()) buffer = other->second;
    Use& use = result[buffer];
    use.reads |= is_read(region.touch), use.writes |= is_write(region.touch);
  }
  return result;
}

bool share(const Touched& a, const Touched& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& use) {
    const auto other = b.find(use.first);
    return other != b.end() && (use.second.writes || other->second.writes);
  });
}

// What grids so far have read, and what a grid wrote when it, or one before, had read it.
struct Caches {
  std::set<const Buffer*> read, outdated;

  void add(const Touched& grid) {
    for (const auto& [buffer, use] : grid)
      if (use.reads) read.insert(buffer);
    for (const auto& [buffer, use] : grid)
      if (use.writes && read.contains(buffer)) outdated.insert(buffer);
  }
  bool may_mislead(const Touched& grid) const {
    return std::any_of(grid.begin(), grid.end(),
                       [&](const auto& use) { return use.second.reads && outdated.contains(use.first); });
  }
};

// One name for all tensors that may be in the same memory.
std::map<const Buffer*, const Buffer*> merged(const Kernel& kernel) {
  std::map<const Buffer*, const Buffer*> result;
  for (const auto& [a, b] : kernel.may_alias) {
    const auto name = [&](const Buffer* x) { return result.emplace(x, x).first->second; };
    const Buffer *from = name(a.get()), *to = name(b.get());
    for (auto& [buffer, own] : result) own = own == from ? to : own;
  }
  return result;
}

bool multiplies(const Grid& grid) {
  bool found = false;
  for_each_stmt(grid.body, [&](const Stmt& s) { found |= as<Gemm>(s) != nullptr; });
  return found;
}

// What it is worth that a grid runs beside the one before; 0 if it cannot. Blocks that multiply run longest,
// and so leave most processors idle at their end.
std::vector<int> worth_of_sides(const Kernel& kernel) {
  const auto same_memory = merged(kernel);
  std::vector<int> result;
  Touched before;
  Caches caches;
  bool multiplied = false;
  for (const Grid& grid : kernel.grids) {
    Touched own = touched_by(grid, same_memory);
    const bool can = !result.empty() && !share(before, own) && !caches.may_mislead(own),
               multiplies_too = multiplies(grid);
    result.push_back(can ? 1 + (multiplied ? 1 : 0) + (multiplies_too ? 1 : 0) : 0);
    caches.add(own);
    before = std::move(own), multiplied = multiplies_too;
  }
  return result;
}

}  // namespace

// No two neighbours, and among such choices one that is worth most.
std::vector<GridWait> plan_grid_waits(const Kernel& kernel) {
  const std::vector<int> worth = worth_of_sides(kernel);
  const std::size_t count = worth.size();
  std::vector<int> at_begin(count, 0), at_end(count, 0);
  for (std::size_t i = 1; i < count; ++i) {
    at_begin[i] = std::max(at_begin[i - 1], at_end[i - 1]);
    at_end[i] = worth[i] > 0 ? at_begin[i - 1] + worth[i] : 0;
  }
  std::vector<GridWait> result(count, GridWait::at_begin);
  for (std::size_t i = count; i-- > 1;) {
    if (at_end[i] <= at_begin[i]) continue;
    result[i--] = GridWait::at_end;  // the one before it waits at its start
  }
  if (count > 0) result[0] = GridWait::never;
  return result;
}

}  // namespace tegula::passes

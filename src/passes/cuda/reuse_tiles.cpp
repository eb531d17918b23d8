#include "passes/cuda/reuse_tiles.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// From the first to the last statement of a step that uses a tile.
struct Life {
  BufferPtr tile;
  std::size_t first, last;
};

// Those of tiles that the step declares, and only the consumers touch.
std::vector<Life> lives_of(const Body& step, const Roles& roles) {
  const Effects loads = all_effects(roles.producer);
  std::vector<Life> result;
  for (const Stmt& s : step) {
    const auto* declared = as<Declare>(s);
    if (!declared || declared->tile->space != Space::shared || roles.ring_of(declared->tile.get()) >= 0 ||
        loads.reads(declared->tile) || loads.writes(declared->tile))
      continue;
    result.push_back({declared->tile, step.size(), 0});
  }
  for (std::size_t i = 0; i < step.size(); ++i)
    for (const Region& r : all_effects(step[i]).regions)
      for (Life& own : result)
        if (own.tile == r.view->buffer) own.first = std::min(own.first, i), own.last = i;
  std::stable_sort(result.begin(), result.end(),
                   [](const Life& a, const Life& b) { return a.first < b.first; });
  return result;
}

BufferRenaming reused(std::vector<Life> lives) {
  BufferRenaming result;
  for (auto own = lives.begin(); own != lives.end(); ++own) {
    const auto place = std::find_if(lives.begin(), own, [&](const Life& before) {
      return !result.contains(before.tile) && before.last < own->first &&
             before.tile->type == own->tile->type && equal(before.tile->shape, own->tile->shape);
    });
    if (place == own) continue;
    place->last = own->last;
    result.emplace(own->tile, place->tile);
  }
  return result;
}

}  // namespace

bool reuse_tiles(Roles& roles) {
  bool any = false;
  roles.consumer = map_body(roles.consumer, [&](const Stmt& s) -> Body {
    const auto* loop = as<For>(s);
    if (!loop || loop->kind != LoopKind::pipelined) return {s};
    const BufferRenaming by = reused(lives_of(loop->body, roles));
    if (by.empty()) return {s};
    any = true;
    For step = *loop;
    std::erase_if(step.body, [&](const Stmt& inner) {
      const auto* declared = as<Declare>(inner);
      return declared && by.contains(declared->tile);
    });
    step.body = rename_buffers(step.body, by);
    return {statement(std::move(step), s->at)};
  });
  return any;
}

}  // namespace tegula::passes

#include "passes/cuda/reuse_tiles.hpp"

#include <algorithm>
#include <unordered_set>

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

void add_reused(std::vector<Life> lives, std::vector<TileReuse>& found) {
  std::unordered_set<BufferPtr> placed;
  for (auto own = lives.begin(); own != lives.end(); ++own) {
    const auto place = std::find_if(lives.begin(), own, [&](const Life& before) {
      return !placed.contains(before.tile) && before.last < own->first &&
             before.tile->type == own->tile->type && equal(before.tile->shape, own->tile->shape);
    });
    if (place == own) continue;
    place->last = own->last;
    placed.insert(own->tile);
    found.push_back({own->tile, place->tile});
  }
}

bool is_step(const Stmt& s) {
  const auto* loop = as<For>(s);
  return loop && loop->kind == LoopKind::pipelined;
}

}  // namespace

std::vector<TileReuse> tiles_to_reuse(const Roles& roles) {
  std::vector<TileReuse> result;
  for_each_stmt(roles.consumer, [&](const Stmt& s) {
    if (is_step(s)) add_reused(lives_of(as<For>(s)->body, roles), result);
  });
  const auto bytes = [](const TileReuse& own) { return own.tile->elements() * own.tile->type.bits(); };
  std::stable_sort(result.begin(), result.end(),
                   [&](const TileReuse& a, const TileReuse& b) { return bytes(a) < bytes(b); });
  return result;
}

void reuse_tiles(Roles& roles, const std::vector<TileReuse>& which) {
  BufferRenaming by;
  for (const TileReuse& own : which) by.emplace(own.tile, own.place);
  roles.consumer = map_body(roles.consumer, [&](const Stmt& s) -> Body {
    if (!is_step(s)) return {s};
    For step = *as<For>(s);
    const auto gives_place = [&](const Stmt& inner) {
      const auto* declared = as<Declare>(inner);
      return declared && by.contains(declared->tile);
    };
    if (std::none_of(step.body.begin(), step.body.end(), gives_place)) return {s};
    std::erase_if(step.body, gives_place);
    step.body = rename_buffers(step.body, by);
    return {statement(std::move(step), s->at)};
  });
}

}  // namespace tegula::passes

#include "passes/cuda/filled_tiles.hpp"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

bool touches_fragments(const Stmt& s) {
  if (const auto* declared = as<Declare>(s)) return declared->tile->space == Space::fragment;
  for (const Region& r : all_effects(s).regions) {
    if (r.view->buffer->space == Space::fragment) return true;
  }
  return false;
}

void FilledTiles::refuse(const BufferPtr& tile, const Stmt& fill, Reason reason) {
  if (reason.at.line() == 0) reason.at = fill->at;
  const auto* copy = as<Copy>(fill);
  if (!find(refused, tile)) refused.push_back({tile, std::move(reason), copy && !copy->from.is_tile()});
}

namespace {

class Search {
 public:
  explicit Search(const Body& all) : all_(all) {
    collect(all, nullptr);
    drop_filled_twice();
  }
  FilledTiles found;

 private:
  void collect(const Body& body, const For* pipelined);
  void add(const BufferPtr& tile, const Stmt& fill, const Body& scope, const For* pipelined);
  void refuse_teams(const For& teams);
  void drop_filled_twice();

  const Body& all_;
};

void Search::add(const BufferPtr& tile, const Stmt& fill, const Body& scope, const For* pipelined) {
  for (RingCandidate& c : found.candidates) {
    if (c.tile == tile && c.scope == &scope) return c.fills.push_back(fill);
  }
  found.candidates.push_back({tile,
                              {fill},
                              &scope,
                              pipelined ? pipelined->stages : 1,
                              pipelined != nullptr,
                              pipelined ? pipelined->index[0]->at : Loc()});
}

// The tile of those declared in the same body that the statement fills.
Planned<BufferPtr> filled_tile(const Stmt& s, const Effects& e, const std::vector<BufferPtr>& targets,
                               const std::vector<BufferPtr>& declared, bool pipelined) {
  if (!as<Copy>(s) && !pipelined)
    return Reason{"a loop over elements fills it outside a pipelined loop", "copy it from a tensor"};
  if (touches_fragments(s))
    return Reason{
        "it is computed from fragments",
        "copy it from a tensor, which another grid may write, or multiply from registers: gemm(fragment, …)"};
  if (targets.size() != 1) return Reason{"its statement writes other memory too", "write it alone"};
  if (e.leaves || e.reports || !e.assigned.empty())
    return Reason{"its statement prints, asserts or assigns variables", "do that in a statement of its own"};
  if (std::find(declared.begin(), declared.end(), targets[0]) == declared.end())
    return Reason{"it is declared outside the body that fills it", "declare it where it is filled"};
  return targets[0];
}

// Warps or groups that copy each for itself have tiles each, for which no role could know the steps.
void Search::refuse_teams(const For& teams) {
  for_each_stmt(teams.body, [&](const Stmt& s) {
    const auto* copy = as<Copy>(s);
    if (copy && copy->to.buffer->space == Space::shared)
      found.refuse(copy->to.buffer, s,
                   {"each warp or group of a loop over them fills one for itself",
                    "declare and copy it around that loop"});
  });
}

void Search::collect(const Body& body, const For* pipelined) {
  std::vector<BufferPtr> declared;
  for (const Stmt& s : body) {
    if (const auto* n = as<Declare>(s); n && n->tile->space == Space::shared) declared.push_back(n->tile);
    const auto* loop = as<For>(s);
    if (as<Copy>(s) || (loop && loop->kind == LoopKind::parallel)) {
      const Effects e = all_effects(s);
      std::vector<BufferPtr> targets;
      for (const Region& r : e.regions) {
        if (is_write(r.touch)) targets.push_back(r.view->buffer);
      }
      const auto tile = filled_tile(s, e, targets, declared, pipelined != nullptr);
      if (tile) add(*tile, s, body, pipelined);
      for (const BufferPtr& target : targets) {
        if (!tile && target->space == Space::shared) found.refuse(target, s, tile.reason());
      }
    }
    if (loop && loop->kind == LoopKind::parallel) continue;
    if (loop && (loop->kind == LoopKind::warps || loop->kind == LoopKind::warp_groups)) {
      refuse_teams(*loop);
      continue;
    }
    for_each_body(s, [&](const Body& inner) {
      const For* around = as<If>(s) ? pipelined : nullptr;  // a branch of a step
      collect(inner, loop && loop->kind == LoopKind::pipelined ? loop : around);
    });
  }
}

void Search::drop_filled_twice() {
  std::unordered_map<const Buffer*, int> writers;
  const std::function<void(const Body&)> count = [&](const Body& body) {
    for (const Stmt& s : body) {
      const auto* loop = as<For>(s);
      const bool whole = loop && loop->kind == LoopKind::parallel;
      std::unordered_set<const Buffer*> own;
      for (const Region& r : (whole ? all_effects(s) : effects(s)).regions) {
        if (is_write(r.touch)) own.insert(r.view->buffer.get());
      }
      for (const Buffer* buffer : own) ++writers[buffer];
      if (!whole) for_each_body(s, count);
    }
  };
  count(all_);
  std::erase_if(found.candidates, [&](const RingCandidate& c) {
    const bool again = writers[c.tile.get()] != static_cast<int>(c.fills.size());
    if (again)
      found.refuse(c.tile, c.fills[0], {"other statements write it too", "use another tile for the result"});
    const bool in_part = !again && !fill_all(c);
    if (in_part)
      found.refuse(c.tile, c.fills[0],
                   {"it is not filled by whole rows, each once", "fill all of its rows, each once"});
    return again || in_part;
  });
}

}  // namespace

FilledTiles filled_tiles(const Body& body) { return Search(body).found; }

}  // namespace tegula::passes

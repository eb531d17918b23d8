#include "passes/cuda/spread_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/visit.hpp"
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr std::int64_t bytes_of_thread = 16;  // that it copies at a time

// What a statement wants of its block that threads of several CTAs do not have in common; nothing if it is
// none.
std::string wants(const Stmt& s) {
  const auto* loop = as<For>(s);
  if (as<Gemm>(s)) return "a product";
  if (as<Scan>(s)) return "a scan";
  if (as<Accumulate>(s) || as<Turn>(s)) return "a sum in the order of turns";
  if (as<Assert>(s)) return "an assertion, which names its block";
  if (as<Print>(s)) return "`print`, which names its block";
  if (as<Exit>(s)) return "`exit_if`";
  if (loop && (loop->kind == LoopKind::warps || loop->kind == LoopKind::warp_groups)) return "`each_group`";
  return "";
}

}  // namespace

Reason reason_not_to_spread(const Grid& grid, bool has_roles, const CudaTarget& target) {
  if (grid.hints.cluster == 1) return {};
  if (!target.has_wgmma()) return {"this GPU has no clusters", "it has no effect here", grid.at};
  if (has_roles)
    return {"the roles of a block are in one CTA",
            "leave it out: blocks share loads if the tensors of a call make it worthwhile", grid.at};
  if (grid.hints.blocks_per_processor > 0)
    return {"blocks of a cluster share a processor as it comes", "leave out .blocks_per_processor", grid.at};
  Reason result;
  for_each_stmt(grid.body, [&](const Stmt& s) {
    const std::string wanted = wants(s);
    if (!wanted.empty() && result.why.empty())
      result = {fmt::format("the block has {}", wanted), "leave it out, or divide the work by a grid's index",
                s->at};
  });
  return result;
}

Reason reason_of_rings(const CopyRings& rings, const Grid& grid) {
  if (grid.hints.cluster == 1) return {};
  const std::int64_t of_slot = bytes_of_thread * grid.hints.threads;
  for (const auto& [loop, ring] : rings.loops) {
    const auto good = [&](const BufferPtr& tile) { return ring.is_own && slot_bytes(*tile) == of_slot; };
    const auto bad = std::find_if_not(ring.tiles.begin(), ring.tiles.end(), good);
    if (bad != ring.tiles.end())
      return {
          fmt::format("tile {} is not loaded ahead by the threads that read it, 16 bytes each", named(**bad)),
          fmt::format("load {} bytes in a step, and use them element by element", of_slot), grid.at};
  }
  return {};
}

void spread_block(Grid& grid, const Reason& not_spread) {
  if (not_spread.why.empty())
    grid.hints.threads *= grid.hints.cluster;
  else
    grid.hints.cluster = 1;
}

}  // namespace tegula::passes

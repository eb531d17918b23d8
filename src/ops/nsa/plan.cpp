#include "ops/nsa/plan.hpp"

#include <algorithm>

#include "ops/lists/walk.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

// The cost per token: the rows that the micro-kernel multiplies for it. Filling these with neighbouring
// tokens is free; more rows would multiply blocks that only some of the tokens selected.
double estimate(const NsaProblem& p, const NsaPlan& plan) {
  const int rows = plan.queries * plan.pack, entries = plan.queries * (p.entries + 1);
  const bool fits =
      rows <= kernel_rows && entries <= cpu_table.selection.most_entries && plan.queries <= p.tokens;
  return fits ? static_cast<double>(kernel_rows) / plan.queries : never;
}

}  // namespace

NsaPlan plan_nsa(const NsaProblem& p, const AttentionTiles& given) {
  const CpuSelection& limits = cpu_table.selection;
  const int pack = p.per_query_head || p.group > limits.most_rows ? 1 : static_cast<int>(p.group);
  const int wanted = given.keys                     ? given.keys
                     : p.block <= limits.usual_keys ? limits.usual_keys
                                                    : limits.most_keys;
  const int keys = tile_of_blocks(p.block, wanted).extent;
  if (given.queries) return {pack, std::min(given.queries, std::max(1, limits.most_rows / pack)), keys};
  Candidates<NsaPlan, kernel_rows> candidates;
  for (int queries = 1; queries <= kernel_rows; ++queries) candidates.add({pack, queries, keys});
  return best_of(candidates, [&](const NsaPlan& plan) { return estimate(p, plan); });
}

}  // namespace tegula::ops

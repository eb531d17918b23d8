#include "ops/attention/plan.hpp"

#include <algorithm>
#include <cmath>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

// Few, so that they can be built in for the usual dims and types; the last ones are for few queries.
constexpr AttentionTiles usual_tiles[] = {{256, 128}, {64, 64}, {16, 64}, {4, 64}, {1, 64}};
// Products of bf16 take so little time that steps, which read and write the sums once more, are fewer.
constexpr AttentionTiles tiles_of_pairs{256, 256};
constexpr int few_queries = 16, most_rows = 512;

// The steps over the keys that the queries of a tile see together. Those of a window begin anywhere in a tile
// of keys.
double steps_of(const AttentionProblem& p, const AttentionPlan& plan) {
  const double all = std::ceil(static_cast<double>(p.keys) / plan.keys);
  if (p.seen >= p.keys) return all;
  const double together = static_cast<double>(p.seen + std::min<std::int64_t>(plan.queries, p.queries) - 1);
  return std::min(all, 1 + (together - 1) / plan.keys);
}

// Tiles of few queries waste no keys at the ends of a window.
bool suits(const AttentionTiles& usual, const AttentionProblem& p) {
  return usual.queries > few_queries || p.queries <= few_queries ||
         (p.seen < p.keys && usual.queries == few_queries);
}

}  // namespace

double estimate(const AttentionProblem& p, const AttentionPlan& plan) {
  const double rows = plan.queries * plan.pack, keys = plan.keys, d = p.dim, dv = p.dim_v;
  const double bytes = 4 * (rows * (d + dv + keys) + keys * (d + dv));
  const CpuAttention& cost = cpu_table.attention;
  if (bytes > cost.most_bytes || rows > most_rows) return never;
  const double padded = round_up(rows, kernel_rows);
  const double products = padded * (round_up(keys, kernel_columns) * d + keys * round_up(dv, kernel_columns));
  const double step = products + cpu_table.pack * keys * (d + dv) + cost.score * rows * keys +
                      cost.rescale * rows * dv + cost.step;
  const double steps = steps_of(p, plan);
  const double blocks = static_cast<double>(p.sequences * p.heads / plan.pack) *
                        std::ceil(static_cast<double>(p.queries) / plan.queries);
  return std::ceil(blocks / planned_processors) * (steps * step + cost.block);
}

AttentionPlan plan_attention(const AttentionProblem& p, const AttentionTiles& given) {
  Candidates<int, 2> packs{1};
  if (p.group > 1 && p.group <= 64) packs.add(static_cast<int>(p.group));
  Candidates<AttentionPlan, 2 * (1 + std::size(usual_tiles))> candidates;
  for (int pack : packs) {
    const auto add = [&](const AttentionTiles& usual) {
      candidates.add(
          {given.queries ? given.queries : usual.queries, given.keys ? given.keys : usual.keys, pack});
    };
    for (const AttentionTiles& usual : usual_tiles)
      if (suits(usual, p)) add(usual);
    if (p.by_pairs) add(tiles_of_pairs);
  }
  return best_of(candidates, [&](const AttentionPlan& plan) { return estimate(p, plan); });
}

}  // namespace tegula::ops

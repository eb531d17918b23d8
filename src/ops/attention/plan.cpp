#include "ops/attention/plan.hpp"

#include <algorithm>
#include <cmath>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

// Few, so that they can be built in for the usual dims and types; the last ones are for few queries.
constexpr AttentionTiles usual_tiles[] = {{256, 128}, {64, 64}, {16, 64}, {4, 64}, {1, 64}};
// Products of bf16 take so little time that steps, which read and write the sums once more, are fewer; tiles
// of fewer queries are for few queries, or where those do not fit.
constexpr AttentionTiles tiles_of_pairs{256, 256}, small_tiles_of_pairs[] = {{128, 256}, {128, 128}};
constexpr std::int64_t most_of_small_tiles = 512;
constexpr int few_queries = 16, most_rows = 512;

// The mean over the tiles of queries under a causal mask: each sees the keys of its last query.
double steps_under_mask(const AttentionProblem& p, const AttentionPlan& plan) {
  const std::int64_t tiles = (p.queries + plan.queries - 1) / plan.queries;
  double steps = 0;
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t end = std::min(p.queries, (i + 1) * plan.queries) + p.keys - p.queries + p.right,
                       seen = std::clamp<std::int64_t>(end, 0, p.keys);
    steps += static_cast<double>((seen + plan.keys - 1) / plan.keys);
  }
  return steps / static_cast<double>(std::max<std::int64_t>(tiles, 1));
}

// The steps over the keys that the queries of a tile see together. Those of a window begin anywhere in a tile
// of keys.
double steps_of(const AttentionProblem& p, const AttentionPlan& plan) {
  const double all = std::ceil(static_cast<double>(p.keys) / plan.keys);
  if (p.packed == 1 && p.left < 0 && p.right >= 0) return steps_under_mask(p, plan);
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

double formed_by_seen(const AttentionProblem& p, const AttentionPlan& plan) {
  const std::int64_t tiles = (p.queries + plan.queries - 1) / plan.queries;
  std::int64_t seen = 0;
  for (std::int64_t i = 0; i < p.queries; ++i)
    seen += p.right < 0 ? p.keys : std::clamp<std::int64_t>(p.keys - p.queries + i + 1 + p.right, 0, p.keys);
  return static_cast<double>(tiles * plan.queries * plan.keys) * steps_of(p, plan) /
         static_cast<double>(std::max<std::int64_t>(seen, 1));
}

AttentionPlan plan_attention(const AttentionProblem& p, const AttentionTiles& given) {
  Candidates<int, 2> packs{1};
  if (p.group > 1 && p.group <= 64) packs.add(static_cast<int>(p.group));
  Candidates<AttentionPlan, 2 * (1 + std::size(small_tiles_of_pairs) + std::size(usual_tiles))> candidates;
  const bool fits = estimate(p, {tiles_of_pairs.queries, tiles_of_pairs.keys, 1}) < never;
  for (int pack : packs) {
    const auto add = [&](const AttentionTiles& usual) {
      candidates.add(
          {given.queries ? given.queries : usual.queries, given.keys ? given.keys : usual.keys, pack});
    };
    for (const AttentionTiles& usual : usual_tiles)
      if (suits(usual, p)) add(usual);
    if (!p.by_pairs) continue;
    add(tiles_of_pairs);
    if (p.queries > most_of_small_tiles && fits) continue;
    for (const AttentionTiles& usual : small_tiles_of_pairs) add(usual);
  }
  return best_of(candidates, [&](const AttentionPlan& plan) { return estimate(p, plan); });
}

}  // namespace tegula::ops

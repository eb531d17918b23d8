#include "ops/attention/plan.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr double block_bytes = 1.0 * 1024 * 1024;
// In units of one multiplication and addition of the micro-kernel: packing an element of k or v, the softmax
// of a score, rescaling an element of the sum, beginning a step and a block.
constexpr double pack_cost = 16, score_cost = 24, rescale_cost = 4, step_cost = 4'000, block_cost = 40'000;

// Few, so that they can be built in for the usual dims and types; the last ones are for few queries.
constexpr AttentionTiles usual_tiles[] = {{256, 128}, {64, 64}, {16, 64}, {4, 64}, {1, 64}};
constexpr int few_queries = 16;

}  // namespace

double estimate(const AttentionProblem& p, const AttentionPlan& plan) {
  const double rows = plan.queries * plan.pack, keys = plan.keys, d = p.dim, dv = p.dim_v;
  const double bytes = 4 * (rows * (d + dv + keys) + keys * (d + dv));
  if (bytes > block_bytes) return std::numeric_limits<double>::infinity();
  const double padded = round_up(rows, kernel_rows);
  const double products = padded * (round_up(keys, kernel_columns) * d + keys * round_up(dv, kernel_columns));
  const double step = products + pack_cost * keys * (d + dv) + score_cost * rows * keys +
                      rescale_cost * rows * dv + step_cost;
  const double steps = std::ceil(static_cast<double>(p.keys) / keys);
  const double blocks = static_cast<double>(p.sequences * p.heads / plan.pack) *
                        std::ceil(static_cast<double>(p.queries) / plan.queries);
  return std::ceil(blocks / planned_processors) * (steps * step + block_cost);
}

AttentionPlan plan_attention(const AttentionProblem& p, const AttentionTiles& given) {
  std::vector<int> packs{1};
  if (p.group > 1 && p.group <= 64) packs.push_back(static_cast<int>(p.group));
  AttentionPlan best;
  double best_time = std::numeric_limits<double>::infinity();
  for (int pack : packs)
    for (const AttentionTiles& usual : usual_tiles) {
      if (usual.queries <= few_queries && p.queries > few_queries) continue;
      const AttentionPlan plan{given.queries ? given.queries : usual.queries,
                               given.keys ? given.keys : usual.keys, pack};
      const double time = plan.queries * pack <= 512 ? estimate(p, plan) : best_time;
      if (time < best_time || best.queries == 0) best = plan, best_time = time;
    }
  return best;
}

}  // namespace tegula::ops

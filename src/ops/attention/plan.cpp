#include "ops/attention/plan.hpp"

#include <cmath>
#include <limits>
#include <vector>

namespace tegula::ops {

namespace {

constexpr int kernel_rows = 14, kernel_columns = 32;
constexpr double block_bytes = 1.0 * 1024 * 1024;
// In units of one multiplication and addition of the micro-kernel: packing an element of k or v, the softmax
// of a score, rescaling an element of the sum, beginning a step and a block.
constexpr double pack_cost = 16, score_cost = 24, rescale_cost = 4, step_cost = 4'000, block_cost = 40'000;

double round_up(double value, double step) { return std::ceil(value / step) * step; }

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
  return std::ceil(blocks / p.processors) * (steps * step + block_cost);
}

AttentionPlan plan_attention(const AttentionProblem& p, const AttentionTiles& given) {
  const std::vector<int> queries =
      given.queries ? std::vector{given.queries} : std::vector{1, 4, 16, 32, 64, 128, 256};
  const std::vector<int> keys = given.keys ? std::vector{given.keys} : std::vector{32, 64, 128};
  std::vector<int> packs{1};
  if (p.group > 1 && p.group <= 64) packs.push_back(static_cast<int>(p.group));
  AttentionPlan best{queries.front(), keys.front(), 1};
  double best_time = estimate(p, best);
  for (int pack : packs)
    for (int q : queries)
      for (int k : keys) {
        const double time = q * pack <= 512 ? estimate(p, {q, k, pack}) : best_time;
        if (time < best_time) best = {q, k, pack}, best_time = time;
      }
  return best;
}

}  // namespace tegula::ops

#include "ops/attention/backward_plan.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr double block_bytes = 1.0 * 1024 * 1024;
// In units of one multiplication and addition of the micro-kernel: packing an element of an operand, the
// gradient of a score, beginning a step and a block.
constexpr double pack_cost = 16, score_cost = 40, step_cost = 6'000, block_cost = 40'000;

// Three products of a pass, or four, with m rows on the left and n columns on the right, and their inner or
// outer extents d and dv.
double step_time(double m, double n, double d, double dv, bool both) {
  const double rows = round_up(m, kernel_rows), columns = round_up(n, kernel_columns);
  const double products = rows * (columns * (d + dv) + n * round_up(d, kernel_columns) +
                                  (both ? n * round_up(dv, kernel_columns) : 0));
  return products + pack_cost * n * (2 * d + (both ? 2 : 1) * dv) + score_cost * m * n + step_cost;
}

}  // namespace

double estimate_backward(const AttentionProblem& p, const AttentionPlan& plan) {
  const double rows = plan.queries * plan.pack, keys = plan.keys, d = p.dim, dv = p.dim_v;
  const double bytes = 4 * (2 * rows * keys + (rows + 2 * keys) * (d + dv));
  if (bytes > block_bytes) return std::numeric_limits<double>::infinity();
  const double q_tiles = std::ceil(static_cast<double>(p.queries) / plan.queries),
               k_tiles = std::ceil(static_cast<double>(p.keys) / keys);
  const double parts = static_cast<double>(p.sequences * p.heads / plan.pack),
               key_heads = static_cast<double>(p.sequences * p.heads / p.group);
  const double by_queries = std::ceil(parts * q_tiles / planned_processors) *
                            (k_tiles * step_time(rows, keys, d, dv, false) + block_cost);
  const double members = static_cast<double>(p.group / plan.pack);
  const double by_keys = std::ceil(key_heads * k_tiles / planned_processors) *
                         (members * q_tiles * step_time(keys, rows, d, dv, true) + block_cost);
  return by_queries + by_keys;
}

AttentionPlan plan_attention_backward(const AttentionProblem& p, const AttentionTiles& given) {
  const std::vector<int> queries =
      given.queries ? std::vector{given.queries} : std::vector{1, 4, 16, 32, 64, 128};
  const std::vector<int> keys = given.keys ? std::vector{given.keys} : std::vector{32, 64, 128};
  std::vector<int> packs{1};
  if (p.group > 1 && p.group <= 64) packs.push_back(static_cast<int>(p.group));
  AttentionPlan best{queries.front(), keys.front(), 1};
  double best_time = estimate_backward(p, best);
  for (int pack : packs)
    for (int q : queries)
      for (int k : keys) {
        const double time = q * pack <= 256 ? estimate_backward(p, {q, k, pack}) : best_time;
        if (time < best_time) best = {q, k, pack}, best_time = time;
      }
  return best;
}

}  // namespace tegula::ops

#include "ops/attention/backward_plan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr CpuAttention cost = cpu_table.attention_gradients;
constexpr double most_backward_rows = 256;
// Products of bf16 take so little time that tiles are larger, which load their operands less often.
constexpr int most_of_pairs = 256;

// Three products of a pass, or four, with m rows on the left and n columns on the right, and their inner or
// outer extents d and dv.
double step_time(double m, double n, double d, double dv, bool both) {
  const double rows = round_up(m, kernel_rows), columns = round_up(n, kernel_columns);
  const double products = rows * (columns * (d + dv) + n * round_up(d, kernel_columns) +
                                  (both ? n * round_up(dv, kernel_columns) : 0));
  return products + cpu_table.pack * n * (2 * d + (both ? 2 : 1) * dv) + cost.score * m * n + cost.step;
}

}  // namespace

double estimate_backward(const AttentionProblem& p, const AttentionPlan& plan) {
  const double rows = plan.queries * plan.pack, keys = plan.keys, d = p.dim, dv = p.dim_v;
  const double bytes = 4 * 2 * rows * keys + (p.by_pairs ? 2 : 4) * (rows + 2 * keys) * (d + dv);
  if (bytes > cost.most_bytes || rows > most_backward_rows) return never;
  const double q_tiles = std::ceil(static_cast<double>(p.queries) / plan.queries),
               k_tiles = std::ceil(static_cast<double>(p.keys) / keys);
  const double heads = static_cast<double>(p.sequences * p.heads / plan.pack),
               key_heads = static_cast<double>(p.sequences * p.heads / p.group);
  const double by_queries = std::ceil(heads * q_tiles / planned_processors) *
                            (k_tiles * step_time(rows, keys, d, dv, false) + cost.block);
  const double members = static_cast<double>(p.group / plan.pack);
  const double by_keys = std::ceil(key_heads * k_tiles / planned_processors) *
                         (members * q_tiles * step_time(keys, rows, d, dv, true) + cost.block);
  return by_queries + by_keys;
}

namespace {

AttentionPlan plan_backward(const AttentionProblem& p, const AttentionTiles& given, bool may_pack) {
  using Extents = Candidates<int, 7>;
  Extents queries = given.queries ? Extents{given.queries} : Extents{1, 4, 16, 32, 64, 128};
  Extents keys = given.keys ? Extents{given.keys} : Extents{32, 64, 128};
  if (p.by_pairs && given.queries == 0) queries.add(most_of_pairs);
  if (p.by_pairs && given.keys == 0) keys.add(most_of_pairs);
  Candidates<int, 2> packs{1};
  if (may_pack && p.group > 1 && p.group <= 64) packs.add(static_cast<int>(p.group));
  Candidates<AttentionPlan, 2 * 7 * 4> candidates;
  for (int pack : packs)
    for (int q : queries)
      for (int k : keys) candidates.add({q, k, pack});
  return best_of(candidates, [&](const AttentionPlan& plan) { return estimate_backward(p, plan); });
}

}  // namespace

AttentionPlan plan_attention_backward(const AttentionProblem& p, const AttentionTiles& given) {
  return plan_backward(p, given, true);
}

// One pass saves two of seven products, which take most of the time where they are not those of bf16. Heads
// of a group meet the keys of a block one after the other.
BackwardPlan plan_attention_backward_on_cpu(const AttentionProblem& p, const AttentionTiles& given,
                                            const BackwardTraits& traits) {
  if (p.by_pairs || traits.mask == BackwardMask::packed) return {plan_attention_backward(p, given)};
  BackwardPlan plan{plan_backward(p, given, false)};
  const double blocks = static_cast<double>(p.sequences * p.heads / p.group),
               k_tiles = std::ceil(static_cast<double>(p.keys) / plan.tiles.keys);
  plan.one_pass = true;
  // A power of two, so that few kernels serve all sizes.
  const double wanted = std::clamp(std::ceil(planned_processors / blocks), 1.0, std::max(k_tiles, 1.0));
  plan.shares = static_cast<int>(std::bit_ceil(static_cast<unsigned>(wanted)));
  return plan;
}

}  // namespace tegula::ops

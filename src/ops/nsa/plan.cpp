#include "ops/nsa/plan.hpp"

#include <algorithm>
#include <bit>

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

namespace {

constexpr int most_pack = 128, usual_keys = 64, k_of_product = 16;
constexpr GpuSelection table = gpu_table.selection;

int round_up(int value, int step) { return (value + step - 1) / step * step; }

// One of the equal tiles of a block, a few whole ones, or one with some columns left empty.
int keys_of_step(int block, int wanted) {
  const int tiles = (block + wanted - 1) / wanted;
  if (tiles > 1) return round_up((block + tiles - 1) / tiles, k_of_product);
  return wanted % block == 0 && block % 8 == 0 ? wanted : round_up(block, k_of_product);
}

// Numbers of a tile's lists that are in shared memory at a time.
std::int64_t listed(const NsaProblem& p, const NsaPlan& plan) {
  return std::int64_t{plan.queries} * (p.entries + 1) * (p.repeats ? 2 : 1);
}

std::int64_t keys_seen(const NsaProblem& p) { return p.causal ? p.tokens / 2 : p.tokens; }

// With more than 128 features, registers suffice for only two.
int joined_groups(const NsaProblem& p) {
  return std::max(p.dim, p.dim_v) <= table.most_dim_of_three ? table.most_joined_groups : 2;
}

// Three warp groups read little more than one where tokens agree, and a fifth less where they do not. Each
// leaves out what none of its own tokens selected. `plan` is that of one.
bool joins_groups(const NsaProblem& p, const NsaPlan& plan) {
  const int queries = joined_groups(p) * plan.queries;
  return plan.queries * plan.pack == warp_group_rows && plan.pack >= table.fewest_pack_joined &&
         plan.keys == usual_keys && p.block % usual_keys == 0 &&
         p.all_tokens / queries >= table.tiles_of_processor * gpu_processors &&
         queries * p.entries <= table.most_entries_of_tile;
}

// Queries, and a step of keys and values; in f32 weights as well.
std::int64_t bytes_of(const NsaProblem& p, const NsaPlan& plan, DType type) {
  const std::int64_t rows = std::int64_t{plan.queries} * plan.pack;
  const std::int64_t numbers = rows * p.dim + std::int64_t{plan.keys} * (p.dim + p.dim_v);
  return numbers * type.bytes() + rows * plan.keys * (type == f32 ? f32.bytes() : 0);
}

// With 16-bit operands, sums are in registers.
bool fits(const NsaProblem& p, const NsaPlan& plan, DType type) {
  const bool wide = type.bits() == 16 && plan.queries * plan.pack > warp_group_rows;
  return !(wide && p.dim_v > most_dim_of_128_rows) && bytes_of(p, plan, type) <= bytes_of_block;
}

bool multiplies_by_groups(const NsaProblem& p, DType type) {
  return type.bits() == 16 && p.dim % 16 == 0 && p.dim_v % 16 == 0;
}
bool fits_groups(const NsaProblem& p, DType type) {
  return multiplies_by_groups(p, type) && std::max(p.dim, p.dim_v) <= most_dim_of_128_rows;
}

// The cost per token and block: the keys and values that are read for all heads, and the remaining cost of
// steps. If no candidate fits, as may happen with given tiles, the one with the fewest bytes comes first.
double estimate(const NsaProblem& p, const NsaPlan& plan, DType type) {
  constexpr double beyond = 1e12;
  if (!fits(p, plan, type)) return beyond + static_cast<double>(bytes_of(p, plan, type));
  const double reads = plan.pack > 1 ? 1 : static_cast<double>(p.group);
  const bool joined = plan.queries * plan.pack > warp_group_rows;
  return reads * (1 + table.keys_of_step / plan.keys) * (joined ? table.joined_time : 1);
}

// Tiles of as many heads of a group, with steps of keys that grow smaller.
using NsaPlans = Candidates<NsaPlan, 16>;
void add_candidates(const NsaProblem& p, DType type, const AttentionTiles& given, int pack, NsaPlans& to) {
  NsaPlan plan{.pack = pack};
  plan.queries = given.queries ? std::min(given.queries, std::max(1, 2 * most_pack / pack))
                               : std::max(1, warp_group_rows / pack);
  while (plan.queries > 1 && listed(p, plan) > table.most_listed) plan.queries /= 2;
  const int wanted = multiplies_by_groups(p, type)     ? usual_keys
                     : std::max(p.dim, p.dim_v) <= 256 ? usual_keys / 2
                                                       : usual_keys / 4;
  plan.keys = given.keys ? given.keys : keys_of_step(p.block, wanted);
  to.add(plan);
  for (int keys = plan.keys / 2; keys >= k_of_product; keys /= 2) {
    NsaPlan smaller = plan;
    smaller.keys = keys_of_step(p.block, keys);
    to.add(smaller);
  }
  if (given.queries != 0 || !fits_groups(p, type) || !joins_groups(p, plan)) return;
  plan.queries *= joined_groups(p);
  to.add(plan);
}

// Rows of a warp group that must share a block: as many partials cost as much as the block's keys and values.
NsaPlan with_division(const NsaProblem& p, DType type, NsaPlan plan) {
  const int rows = plan.queries * plan.pack;
  const bool divides = fits_groups(p, type) && p.block >= usual_keys &&
                       keys_seen(p) >= table.fewest_keys_seen && p.entries <= table.most_entries &&
                       plan.pack <= table.most_pack_divided &&
                       (rows == warp_group_rows || rows == joined_groups(p) * warp_group_rows);
  if (!divides) return plan;
  plan.fewest = (table.fewest_rows + plan.pack - 1) / plan.pack;
  plan.least_gain = std::max(table.least_gain, p.entries);
  return plan;
}

}  // namespace

NsaPlan plan_nsa_on_gpu(const NsaProblem& p, DType type, const AttentionTiles& given) {
  // Rows beyond the heads of a group stay empty.
  const bool shared = !p.per_query_head && p.group > 1 && p.group <= most_pack;
  NsaPlans candidates;
  if (shared)
    add_candidates(p, type, given, static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(p.group))),
                   candidates);
  add_candidates(p, type, given, 1, candidates);
  return with_division(p, type,
                       best_of(candidates, [&](const NsaPlan& plan) { return estimate(p, plan, type); }));
}

}  // namespace tegula::ops

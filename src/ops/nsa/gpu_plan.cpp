// Tiles on a GPU: rows of as many neighbouring tokens as a warp group multiplies at a time, or three.
#include <algorithm>
#include <bit>

#include "ops/nsa/plan.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr int most_pack = 128;
// Rows of a warp group that must share a block: as many partials cost as much as the block's keys and values.
constexpr int fewest_rows = 20;
constexpr int least_gain = 24;  // blocks that a warp group must be spared
constexpr int most_pack_divided = 8;
constexpr int most_dim = 128;
constexpr int most_entries = 256;  // longer lists have not been measured
// By a token, on average. Where they are fewer, tiles select too few blocks to gain by it.
constexpr std::int64_t fewest_keys_seen = 6144;
constexpr int usual_keys = 64, k_of_product = 16;
// Warp groups that share keys and values, where there are so many tiles, and lists that fit shared memory.
constexpr int joined_groups = 3, fewest_pack_joined = 4;
constexpr std::int64_t fewest_tiles_joined = 4 * gpu_processors, most_entries_of_tile = 8192;

constexpr std::int64_t most_listed = 52'000;  // numbers, which take four bytes

int round_up(int value, int step) { return (value + step - 1) / step * step; }

// A part of a block, a few whole ones, or one with some columns left empty.
int keys_of_step(int block, int wanted) {
  const int parts = (block + wanted - 1) / wanted;
  if (parts > 1) return round_up((block + parts - 1) / parts, k_of_product);
  return wanted % block == 0 && block % 8 == 0 ? wanted : round_up(block, k_of_product);
}

// Numbers of a tile's lists that are in shared memory at a time.
std::int64_t listed(const NsaProblem& p, const NsaPlan& plan) {
  return std::int64_t{plan.queries} * (p.entries + 1) * (p.repeats ? 2 : 1);
}

std::int64_t keys_seen(const NsaProblem& p) { return p.causal ? p.tokens / 2 : p.tokens; }

// Three warp groups read little more than one where tokens agree, and a fifth less where they do not. Each
// leaves out what none of its own tokens selected.
bool joins_groups(const NsaProblem& p, const NsaPlan& plan) {
  const int queries = joined_groups * plan.queries;
  return plan.queries * plan.pack == warp_group_rows && plan.pack >= fewest_pack_joined &&
         plan.keys == usual_keys && p.block % usual_keys == 0 &&
         p.all_tokens / queries >= fewest_tiles_joined && queries * p.entries <= most_entries_of_tile;
}

// Queries, and a step of keys and values; in f32 weights as well. Of 16 bits, sums lie in registers.
bool fits(const NsaProblem& p, const NsaPlan& plan, DType type) {
  const std::int64_t rows = std::int64_t{plan.queries} * plan.pack;
  if (type.bits() == 16 && rows > warp_group_rows && p.dim_v > most_dim_of_128_rows) return false;
  const std::int64_t numbers = rows * p.dim + std::int64_t{plan.keys} * (p.dim + p.dim_v);
  return numbers * type.bytes() + rows * plan.keys * (type == f32 ? f32.bytes() : 0) <= bytes_of_block;
}

}  // namespace

NsaPlan plan_nsa_on_gpu(const NsaProblem& p, DType type, const AttentionTiles& given) {
  NsaPlan plan;
  const bool fast = type.bits() == 16 && p.dim % 16 == 0 && p.dim_v % 16 == 0;
  // Rows beyond the heads of a group stay empty.
  const bool shared = !p.per_query_head && p.group > 1 && p.group <= most_pack;
  plan.pack = shared ? static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(p.group))) : 1;
  plan.queries = given.queries ? std::min(given.queries, std::max(1, 2 * most_pack / plan.pack))
                               : std::max(1, warp_group_rows / plan.pack);
  while (plan.queries > 1 && listed(p, plan) > most_listed) plan.queries /= 2;
  const int wanted = fast ? usual_keys : std::max(p.dim, p.dim_v) <= 256 ? usual_keys / 2 : usual_keys / 4;
  plan.keys = given.keys ? given.keys : keys_of_step(p.block, wanted);
  for (int keys = plan.keys / 2; keys >= k_of_product && !fits(p, plan, type); keys /= 2)
    plan.keys = keys_of_step(p.block, keys);
  if (plan.pack > 1 && !fits(p, plan, type)) {  // heads have tiles of their own
    NsaProblem alone = p;
    alone.per_query_head = true;
    return plan_nsa_on_gpu(alone, type, given);
  }
  const bool small = fast && std::max(p.dim, p.dim_v) <= most_dim;
  const int rows = plan.queries * plan.pack;
  const bool divides = small && p.block >= usual_keys && keys_seen(p) >= fewest_keys_seen &&
                       p.entries <= most_entries && plan.pack <= most_pack_divided &&
                       (rows == warp_group_rows || rows == joined_groups * warp_group_rows);
  if (divides) {
    plan.fewest = (fewest_rows + plan.pack - 1) / plan.pack;
    plan.least_gain = std::max(least_gain, p.entries);
  }
  if (small && given.queries == 0 && joins_groups(p, plan)) plan.queries *= joined_groups;
  return plan;
}

}  // namespace tegula::ops

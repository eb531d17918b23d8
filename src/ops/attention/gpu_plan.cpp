// Tiles of attention on a GPU. What a block holds decides: sums in registers, queries and two steps of keys
// and values in shared memory.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "ops/attention/backward_plan.hpp"
#include "ops/attention/plan.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/room.hpp"
#include "ops/pieces/splits.hpp"

namespace tegula::ops {

namespace {

AttentionPlan without_tensor_cores(const AttentionProblem& p) {
  const bool wide = std::max(p.dim, p.dim_v) > 128;
  return {wide ? 32 : 64, 32, 1};
}

// Where every block reads keys of its own for few queries, memory gives so many blocks all that it has, and
// more splits take only longer to be merged (measured: 1 × 8192 to 32 × 2048 keys of 2 to 8 heads).
constexpr double blocks_of_memory = 56, merge_steps_of_few_queries = 0.4;

bool waits_for_memory(const AttentionProblem& p, const AttentionPlan& plan) {
  return p.as_they_are && plan.pack >= p.group && p.queries <= plan.queries &&
         plan.queries * plan.pack <= warp_group_rows;
}

// Blocks run in waves; splits that fill the last one pay for their merge.
int plan_splits(const AttentionProblem& p, const AttentionPlan& plan) {
  const double tiles = std::ceil(static_cast<double>(p.queries) / plan.queries);
  const double most_tiles = static_cast<double>(p.queries / plan.queries + p.packed);
  const auto heads = static_cast<double>(p.head_tiles(plan.pack));
  const double blocks =
      static_cast<double>(p.sequences) * heads * std::min(tiles * static_cast<double>(p.packed), most_tiles);
  const double keys = std::min(static_cast<double>(p.keys) / static_cast<double>(p.packed),
                               static_cast<double>(p.seen + plan.queries));
  const double steps = std::ceil(keys / plan.keys);
  const GpuAttention& cost = gpu_table.attention;
  const double of_memory = waits_for_memory(p, plan) ? blocks * steps / blocks_of_memory : 0;
  const double of_split = of_memory > 0 ? merge_steps_of_few_queries : p.merge_steps_of_split;
  std::array<int, most_splits> candidates;
  std::iota(candidates.begin(), candidates.end(), 1);
  return best_of(candidates, [&](int splits) {
    // What the splits find takes memory.
    if (splits > 1 && (splits > steps || blocks * splits > 2 * gpu_processors)) return never;
    const double waves = std::ceil(blocks * splits / gpu_processors),
                 time = std::max(waves * std::ceil(steps / splits), of_memory) + waves * cost.block_steps;
    return splits > 1 ? time + cost.merge_steps + splits * of_split : time;
  });
}

}  // namespace

namespace {

// Keys of a step: as many as registers hold beside the sum of a row, and shared memory twice beside the
// queries.
int most_keys(const AttentionProblem& p, int rows) {
  constexpr std::int64_t room = 225 << 10, bytes = 2;
  for (int keys = 128; keys > 64; keys -= 16) {
    const std::int64_t tiles = (rows * p.dim + 2 * keys * (p.dim + p.dim_v)) * bytes;
    if (p.dim_v / 2.0 + keys * 0.75 <= gpu_table.attention.most_registers && tiles <= room) return keys;
  }
  return 64;
}

// Three warp groups where registers allow: softmax is as long as the products there.
int most_groups(const AttentionProblem& p) {
  const int dim = std::max(p.dim, p.dim_v);
  return dim <= 64 ? 3 : dim <= most_dim_of_128_rows ? 2 : 1;
}

bool shares_tiles(const AttentionProblem& p) {
  return p.group > 1 && p.group <= warp_group_rows && warp_group_rows % p.group == 0;
}

// How many heads of a group share the tiles of few queries: all of them, or else a power of two, if there are
// fewer tiles then, although some rows of them are empty.
int heads_of_few_queries(const AttentionProblem& p) {
  if (shares_tiles(p)) return static_cast<int>(p.group);
  const auto pack = static_cast<int>(
      std::min<std::uint64_t>(std::bit_ceil(static_cast<std::uint64_t>(p.group)), warp_group_rows));
  const auto tiles = [&](int heads) {
    const std::int64_t queries = warp_group_rows / heads;
    return (p.queries + queries - 1) / queries * p.head_tiles(heads);
  };
  return tiles(pack) < tiles(1) ? pack : 1;
}

// Many queries have tiles of all warp groups. Few: the heads of a group share their tile, and so the keys.
AttentionPlan plan_many_rows(const AttentionProblem& p) {
  const int groups = most_groups(p), most = groups * warp_group_rows;
  AttentionPlan plan{most, groups == 1 ? 64 : most_keys(p, most), 1};
  while (plan.queries > warp_group_rows && p.queries <= plan.queries - warp_group_rows)
    plan.queries -= warp_group_rows;
  if (const int pack = heads_of_few_queries(p); pack > 1 && p.queries < plan.queries) {
    plan.pack = pack;
    const std::int64_t rows = p.queries * pack;
    plan.queries = std::min(rows <= warp_group_rows ? 1 : 2, groups) * warp_group_rows / plan.pack;
    plan.keys = plan.keys < 128 ? 64 : 128;  // memory is what such a tile waits for
  }
  return plan;
}

// Steps of the tiles of a head, those included that no query sees; of many tiles some are looked at.
struct StepsOfTiles {
  double all = 0, most = 0, least = never;
};

StepsOfTiles steps_of_tiles(const AttentionProblem& p, const AttentionPlan& plan) {
  constexpr std::int64_t most_looked_at = 16;
  const std::int64_t keys = std::max<std::int64_t>(p.keys / p.packed, 1), shift = keys - p.queries,
                     tiles = (p.queries + plan.queries - 1) / plan.queries,
                     step = (tiles + most_looked_at - 1) / most_looked_at;
  StepsOfTiles result;
  double looked_at = 0;
  for (std::int64_t tile = step / 2; tile < tiles; tile += step, ++looked_at) {
    const std::int64_t first = tile * plan.queries, last = std::min(first + plan.queries, p.queries) - 1;
    const std::int64_t begin = p.left < 0 ? 0 : std::clamp<std::int64_t>(first + shift - p.left, 0, keys),
                       end =
                           p.right < 0 ? keys : std::clamp<std::int64_t>(last + shift + p.right + 1, 0, keys);
    const auto steps =
        end > begin ? static_cast<double>((end + plan.keys - 1) / plan.keys - begin / plan.keys) : 0;
    result.all += steps;
    result.most = std::max(result.most, steps), result.least = std::min(result.least, steps);
  }
  result.all *= static_cast<double>(tiles) / std::max(looked_at, 1.0);
  return result;
}

// Of a head, with its part of the rows that no head has.
double formed_scores(const AttentionProblem& p, const AttentionPlan& plan) {
  const double rows = static_cast<double>(p.head_tiles(plan.pack) * plan.pack * plan.queries);
  return steps_of_tiles(p, plan).all * rows / static_cast<double>(std::max<std::int64_t>(p.heads, 1)) *
         plan.keys;
}

// Smaller tiles form fewer scores that nobody sees: where queries are few, or see few keys. A score of theirs
// takes longer.
AttentionPlan with_small_tiles(const AttentionProblem& p, const AttentionPlan& large) {
  const GpuAttention& cost = gpu_table.attention;
  const int most = most_groups(p) * warp_group_rows, packed = shares_tiles(p) ? static_cast<int>(p.group) : 1;
  const double fewer_rows = most > 2 * warp_group_rows ? cost.fewer_rows_of_three : cost.fewer_rows;
  const AttentionPlan candidates[] = {large,
                                      {warp_group_rows / packed, 64, packed},
                                      {warp_group_rows, 64, 1},
                                      {most / packed, 64, packed},
                                      {most / packed, large.keys, packed}};
  return best_of(candidates, [&](const AttentionPlan& plan) {
    const bool full = plan.queries * plan.pack >= most;
    const double time = formed_scores(p, plan) * (full ? plan.keys > 64 ? 1 : cost.fewer_keys : fewer_rows);
    return &plan == candidates ? cost.least_gain * time : time;
  });
}

// Keys of a step that fit beside the queries.
int fitting_keys(const AttentionProblem& p, const AttentionPlan& plan, DType type) {
  return fitting_rows(plan.keys, p.room, [&](int keys) {
    return (std::int64_t{plan.queries} * plan.pack * p.dim + keys * (p.dim + p.dim_v)) * type.bytes();
  });
}

}  // namespace

AttentionPlan plan_attention_on_gpu(const AttentionProblem& p, DType type, const AttentionTiles& given) {
  AttentionPlan plan = without_tensor_cores(p);
  if (type.bits() == 16) {
    plan = plan_many_rows(p);
    const bool open = given.queries == 0 && given.keys == 0;
    if (open && p.queries * p.group > warp_group_rows) plan = with_small_tiles(p, plan);
  }
  if (given.queries) plan.queries = given.queries;
  plan.keys = given.keys ? given.keys : fitting_keys(p, plan, type);
  plan.splits = plan_splits(p, plan);
  return plan;
}

ProcessorLoad load_of_processors(const AttentionProblem& p, const AttentionPlan& plan) {
  const StepsOfTiles steps = steps_of_tiles(p, plan);
  const auto heads = static_cast<double>(p.sequences * p.head_tiles(plan.pack));
  const double tiles = std::ceil(static_cast<double>(p.queries) / plan.queries) * heads,
               of_all = steps.all * heads / gpu_processors,
               rounds = steps.least == steps.most ? std::ceil(tiles / gpu_processors) : 1;
  return {of_all, of_all / std::max(of_all, rounds * steps.most)};
}

namespace {

constexpr int most_group_splits = 16, most_dim_of_64_rows = 576, keys_of_one_pass = 128;

// Of 33 heads in 16 parts 11 would have three and five none. Where all blocks fit in about one round, some
// more parts have fewer heads each (0.78 of the time); in several rounds they took 1.2 times as long.
int parts_of_one_round(std::int64_t group, int parts, double blocks) {
  constexpr double one_round = 1.1;
  const std::int64_t heads = group / parts;
  const auto more = static_cast<int>((group + heads - 1) / heads);
  return blocks * more <= one_round * gpu_processors ? more : parts;
}

// Blocks of keys work on the heads of a group one after the other. Where they do not fill the processors as
// often as `wanted`, each splits them.
int splits_of_groups(const AttentionProblem& p, int keys, BackwardMask mask, double wanted) {
  const double tiles = std::ceil(static_cast<double>(p.keys) / keys),
               blocks = tiles * static_cast<double>(p.sequences * p.heads / p.group);
  const auto fills = [&](int splits) {
    const double waves = blocks * splits / gpu_processors;
    const bool even = mask == BackwardMask::none || mask == BackwardMask::window;
    return even ? waves / std::ceil(waves) > gpu_table.gradients.filled : waves >= wanted;
  };
  int splits = 1;
  while (splits * 2 <= p.group && splits < most_group_splits && !fills(splits)) splits *= 2;
  return parts_of_one_round(p.group, splits, blocks);
}

// Parts of the heads of a group, and of the queries of each.
struct QuerySplits {
  int heads = 1, rows = 1;
  int all() const { return heads * rows; }
};

// Where blocks would leave half of the processors without work, they divide the queries of a head, too, as
// far as each has some tiles of them and few parts are to be added up. Under a mask blocks have fewer steps:
// 0 to 25 % slower, unless two blocks hold the keys.
QuerySplits splits_of_queries(const AttentionProblem& p, const AttentionPlan& tiles, BackwardMask mask,
                              double wanted) {
  constexpr int least_tiles = 4, few_blocks = 2;
  QuerySplits splits{splits_of_groups(p, tiles.keys, mask, wanted)};
  const double of_head = std::ceil(static_cast<double>(p.keys) / tiles.keys),
               blocks = of_head * static_cast<double>(p.sequences * p.heads / p.group);
  if (mask != BackwardMask::none && !(mask == BackwardMask::window && of_head <= few_blocks)) return splits;
  while (2 * blocks * splits.all() <= gpu_processors && 2 * splits.all() <= most_group_splits &&
         p.queries >= 2 * splits.rows * least_tiles * tiles.queries)
    splits.rows *= 2;
  return splits;
}

// With more than 128 features, two warp groups hold one sum of 128 rows (64 rows with 512 features), in
// addition to two input tiles and the tiles of two steps or one.
BackwardPlan plan_wide(const AttentionProblem& p, BackwardMask mask) {
  constexpr std::int64_t room = 226 << 10, bytes = 2;
  const std::int64_t of_row = (p.dim + p.dim_v) * bytes;
  const bool divides = std::max(p.dim, p.dim_v) > most_dim_of_128_rows;
  const int rows = divides ? 64 : 128;
  const std::int64_t room_of_step = (room - rows * of_row) / ((divides ? 1 : 2) * of_row);
  const auto most = static_cast<int>(std::min<std::int64_t>(64, room_of_step / 16 * 16));
  const int step = divides ? std::min(32, most) : most;
  const QuerySplits splits = splits_of_queries(p, {step, rows, 1}, mask, gpu_table.gradients.even_waves);
  return {.tiles = {rows, rows, 1}, .step = step, .splits = splits.all(), .row_splits = splits.rows};
}

// One block has all keys of a head, and looks at all queries, although a mask may hide the keys from those
// that stand before them.
bool is_alone(const AttentionProblem& p, BackwardMask mask) {
  if (p.keys > keys_of_one_pass || mask == BackwardMask::packed) return false;
  return mask == BackwardMask::none || p.queries <= p.keys;
}

// Where one block has all keys of a head, what it adds to dq is dq.
// Two warp groups hold dk and dv of 64 keys each beside the scores of 80 queries of 128 features, or 128 of
// up to 64; of 64 where the slopes of a cap take registers too (128 would spill 256 bytes, and take 1.4 times
// as long), or the number of a split. Ordered and under a causal mask, 64 are 4 % faster: blocks of keys
// begin with the same queries, and wait for each other. Those of a window begin with queries that are as far
// apart as the blocks, which 64 divides.
// With up to 64 features contributions to dq are multiplied out one step late, which takes 3 to 6 % less time
// without a mask, of 2048 queries and more (none of 1024, and 4 % more of 257), and 6 % less under a causal
// one. With more features registers are too few. Without a mask that is faster than any order, too, by a
// tenth. All heads of a group for a tile of queries, then the next tile, are 5 to 27 % faster under a causal
// mask: no block waits for longer ones at the begin of a head, and groups need not be split for that. From
// 4096 queries on it is up to 20 % slower: by count, blocks that do not wait for each other drift apart, and
// what they read leaves the second-level cache.
BackwardPlan plan_one_pass(const AttentionProblem& p, const BackwardTraits& traits) {
  constexpr std::int64_t few_queries_of_late = 1024, most_queries_of_rows_first = 2048;
  constexpr double waves_of_rows_first = 1.9;
  const int dim = std::max(p.dim, p.dim_v);
  const bool is_small = dim <= 64 && !traits.softcap, alone = is_alone(p, traits.mask),
             is_long = traits.mask == BackwardMask::none
                           ? p.queries > few_queries_of_late
                           : traits.mask == BackwardMask::causal && traits.deterministic &&
                                 p.queries > most_queries_of_rows_first,
             late = traits.hopper && is_small && is_long && !alone,
             in_turn = !alone && (traits.deterministic || late);
  const auto& waves = gpu_table.gradients;
  const bool is_causal = in_turn && traits.mask == BackwardMask::causal,
             short_rows = is_causal && p.queries <= most_queries_of_rows_first;
  const double wanted = !in_turn ? waves.even_waves : short_rows ? waves_of_rows_first : waves.turned_waves;
  const QuerySplits splits = splits_of_queries(
      p, {is_small ? 2 * warp_group_rows : warp_group_rows, keys_of_one_pass, 1}, traits.mask, wanted);
  const bool few = p.queries <= 64 || traits.softcap || splits.all() > 1 || alone ||
                   (in_turn && traits.mask != BackwardMask::none);
  return {.tiles = {is_small ? 128
                    : few    ? 64
                             : 80,
                    keys_of_one_pass, 1},
          .one_pass = true,
          .ordered = in_turn,
          .late = late && splits.rows == 1,
          .alone = alone,
          .splits = splits.all(),
          .row_splits = splits.rows,
          .rows_first = short_rows && p.group > splits.heads};
}

// Tiles of 16 bits whose extents the plan may choose. In one pass blocks of keys take turns, which those of
// packed sequences have none of.
bool is_open(DType type, const AttentionTiles& given) {
  return type.bits() == 16 && given.queries == 0 && given.keys == 0;
}
bool can_turn(const BackwardTraits& traits) {
  return !traits.deterministic || traits.mask != BackwardMask::packed;
}

}  // namespace

// In two passes each block of 64 keys takes one warp group, and works on the heads of a group one after the
// other: few blocks leave processors without work, and one pass takes 0.56 to 0.86 of the time. With four
// blocks a processor it takes as long, and longer under a causal mask, but 0.55 to 0.92 of the time of fewer
// than 96 features, for which two passes have tiles of 96. One pass sums dq in memory, which many
// queries would take more of than a call may.
bool pads_to_one_pass(const AttentionProblem& p, DType type, const AttentionTiles& given,
                      const BackwardTraits& traits) {
  constexpr double few_blocks = 2 * gpu_processors;
  constexpr int least_in_two_passes = 96;
  const int dim = std::max(p.dim, p.dim_v);
  if (!traits.hopper || !is_open(type, given) || !can_turn(traits)) return false;
  const double blocks =
      std::ceil(static_cast<double>(p.keys) / 64) * static_cast<double>(p.sequences * p.heads / p.group);
  const std::int64_t bytes = p.all_queries * p.heads * features_of_one_pass * f32.bytes();
  return p.dim > 64 && dim < features_of_one_pass &&
         (blocks < few_blocks || traits.features < least_in_two_passes) && bytes <= bytes_of_partials;
}

BackwardPlan plan_attention_backward_on_gpu(const AttentionProblem& p, DType type,
                                            const AttentionTiles& given, const BackwardTraits& traits) {
  const int dim = std::max(p.dim, p.dim_v);
  const bool fits = is_open(type, given) && dim <= most_dim_of_64_rows;
  // Beyond 64 features both warp groups share the rows of a product, and each takes whole blocks of columns.
  const bool divides = dim <= 64 || p.dim % 128 == 0;
  if (fits && dim > 128 && traits.hopper) return plan_wide(p, traits.mask);
  if (fits && dim <= 128 && divides && can_turn(traits)) return plan_one_pass(p, traits);
  // Four tiles of inputs, two of scores and a sum are held at a time.
  const int extent = type.bits() == 16 && dim <= 128 ? 64 : dim <= 128 ? 32 : 16;
  return {.tiles = {given.queries ? given.queries : extent, given.keys ? given.keys : extent, 1}};
}

}  // namespace tegula::ops

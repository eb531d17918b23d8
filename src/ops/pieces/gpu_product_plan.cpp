// Tiles of a product on a GPU: candidates, an estimate of their time, the best.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "ops/pieces/plan.hpp"
#include "ops/pieces/product_plan.hpp"

namespace tegula::ops {

namespace {

constexpr int split_counts[] = {1, 2, 3, 4, 6, 8, 12, 16, 32};
// Tiles of 65 to 320 rows that lie along k, where they are measured, whose rows are no multiple of 64: their
// operands are exchanged, so that little of the last tile of rows is outside. The copy engine stores them.
constexpr TileCost exchanged[] = {{80, 64, 128, 0.525, 0.370},  {80, 128, 128, 0.500, 0.440},
                                  {96, 64, 128, 0.506, 0.322},  {96, 128, 128, 0.423, 0.398},
                                  {112, 64, 128, 0.435, 0.360}, {112, 128, 128, 0.415, 0.400},
                                  {144, 64, 128, 0.520, 0.485}, {144, 128, 128, 0.385, 0.320},
                                  {160, 64, 128, 0.490, 0.428}, {160, 128, 128, 0.360, 0.330}};
// Of 257 to 320 rows these in place of the usual ones; where columns are not those of one or two warp groups,
// in sixty-fours, threads store the tiles.
constexpr TileCost of_middle_rows[] = {
    {96, 256, 128, 0.350, 0.396},  {104, 256, 128, 0.360, 0.366}, {136, 64, 128, 0.485, 0.515},
    {136, 128, 128, 0.377, 0.374}, {136, 192, 128, 0.385, 0.363}, {136, 256, 128, 0.335, 0.335},
    {144, 192, 128, 0.400, 0.350}, {144, 256, 128, 0.325, 0.325}, {152, 64, 128, 0.469, 0.473},
    {152, 128, 128, 0.357, 0.342}, {152, 192, 128, 0.365, 0.336}, {152, 256, 128, 0.322, 0.322},
    {160, 192, 128, 0.390, 0.343}, {160, 256, 128, 0.318, 0.318}, {64, 192, 128, 0.626, 0.438},
    {128, 192, 128, 0.354, 0.395}, {128, 256, 128, 0.305, 0.389}};
// Of 65 to 256 rows, of several rounds, with as many slots as there is room for.
constexpr TileCost of_several_rounds = {128, 128, 128, 0.310, 0.319};
constexpr int least_of_middle_rows = 257, least_columns_of_middle_rows = 2048, least_columns_exchanged = 4096,
              least_depth_exchanged = 1024;
// Tiles for long products of many columns whose blocks nearly fill a round of the processors, or two.
constexpr TileCost filling[] = {{64, 112, 128, 0.500, 0.375},  {64, 144, 128, 0.450, 0.375},
                                {64, 160, 128, 0.450, 0.370},  {64, 240, 128, 0.500, 0.451},
                                {128, 144, 128, 0.380, 0.345}, {128, 160, 128, 0.400, 0.355}};
constexpr TileCost filling_of_more_rows[] = {{128, 224, 128, 0.314, 0.314}};
constexpr int least_rows_filling = 64, most_rows_filling = 256, most_of_more_rows = 512,
              least_columns_filling = 7168, least_depth_filling = 4096;
constexpr double least_filled = 0.95;
constexpr std::size_t most_candidates =
    (std::max(std::size(of_middle_rows),
              std::size(gpu_table.of_16_bits) + std::size(gpu_table.of_few_rows) + std::size(filling) + 1) +
     std::size(exchanged)) *
    std::size(split_counts);
// Slots that the compiler takes without being asked, and as many as pay.
constexpr int usual_stages = 4, most_stages = 10, most_groups = 3;
constexpr std::int64_t bytes_of_slots = 226
                                        << 10;  // and of buffers; barriers have the rest of a block's memory
constexpr int least_extent = 16;

constexpr GpuProduct product_cost = gpu_table.product;

std::span<const TileCost> costs_of(DType type, Precision precision) {
  if (type.bits() == 8) return gpu_table.of_8_bits;
  if (type.bits() == 16) return gpu_table.of_16_bits;
  if (precision == Precision::tf32) return gpu_table.of_tf32;
  if (precision == Precision::tf32x3) return gpu_table.of_tf32_x3;
  return gpu_table.of_32_bits;
}

struct ProductPlanner {
  const ProductProblem& p;
  DType type;
  const GemmTiles& given;

  GemmTiles tiles_of(const TileCost& c, int splits) const {
    return {given.m ? given.m : c.m, given.n ? given.n : c.n,
            given.k ? given.k : c.row_bytes * 8 / type.bits(), splits};
  }
  double tiles(const GemmTiles& t) const {
    return static_cast<double>(p.batch) * std::ceil(static_cast<double>(p.m) / t.m) *
           std::ceil(static_cast<double>(p.n) / t.n);
  }
  double steps(const GemmTiles& t) const { return std::ceil(static_cast<double>(p.k) / t.k); }

  // Whether the product is one of those with which tiles of few rows were measured.
  bool has_few_rows() const {
    return type.bits() == 16 && p.batch == 1 && p.sums == 1 && p.m >= gpu_table.least_of_few_rows &&
           p.m <= gpu_table.most_of_few_rows;
  }
  bool has_middle_rows() const {
    return has_few_rows() && p.may_have_any_rows && p.m >= least_of_middle_rows &&
           p.n >= least_columns_of_middle_rows;
  }
  bool may_exchange() const {
    return has_few_rows() && p.may_have_any_rows && p.k >= least_depth_exchanged &&
           (has_middle_rows() || p.n >= least_columns_exchanged);
  }
  bool exchanges(const GemmTiles& t) const {
    return (may_exchange() || has_middle_rows()) && t.m > warp_group_rows && t.m % warp_group_rows != 0;
  }
  // Whether the tile's blocks leave few processors idle in the last of so many rounds.
  bool fills(const TileCost& c, int most_rounds) const {
    const double rounds = tiles(tiles_of(c, 1)) / p.processors, whole = std::ceil(rounds);
    return whole <= most_rounds && rounds >= least_filled * whole;
  }
  template <typename Visit>
  void for_each_filling(const Visit& visit) const {
    const bool is_one = type.bits() == 16 && p.batch == 1 && p.sums == 1 && given.m == 0 && given.n == 0;
    if (!is_one || p.n < least_columns_filling || p.k < least_depth_filling) return;
    if (p.m >= least_rows_filling && p.m <= most_rows_filling)
      for (const TileCost& c : filling)
        if (fills(c, 2)) visit(c);
    if (p.m > gpu_table.most_of_few_rows && p.m <= most_of_more_rows)
      for (const TileCost& c : filling_of_more_rows)
        if (fills(c, 1)) visit(c);
  }
  // Calls `visit` for every tile that the product may have.
  template <typename Visit>
  void for_each_tile(const Visit& visit) const {
    if (may_exchange())
      for (const TileCost& c : exchanged) visit(c);
    if (has_middle_rows()) {
      for (const TileCost& c : of_middle_rows) visit(c);
      return;
    }
    for (const TileCost& c : costs_of(type, p.precision))
      if (!has_few_rows() || c.m != gpu_table.rows_of_three_groups) visit(c);
    if (has_few_rows()) {
      for (const TileCost& c : gpu_table.of_few_rows) visit(c);
      visit(of_several_rounds);
    }
    for_each_filling(visit);
  }

  // What warp groups stage of results for the copy engine, which stores tiles of whole rows of its boxes: two
  // boxes of 64 rows a group; of exchanged tiles, whose groups have 64 columns, half of the rows, or 32 of
  // many.
  std::int64_t staged_bytes(const GemmTiles& t) const {
    constexpr int row_bytes = 128, many_rows = 128, rows_of_many = 32;
    const std::int64_t stored = t.splits > 1 ? f32.bytes() : p.stored_bytes;
    const bool turned = exchanges(t) || t.m < warp_group_rows;
    const std::int64_t along = turned ? t.n : t.m, across = turned ? warp_group_rows : t.n;
    if (across * stored % row_bytes != 0) return 0;
    const std::int64_t parts = (along + warp_group_rows - 1) / warp_group_rows;
    const std::int64_t groups = parts > most_groups ? 2 : parts;
    const std::int64_t rows = !turned ? warp_group_rows : t.m > many_rows ? rows_of_many : (t.m + 1) / 2;
    return 2 * groups * rows * row_bytes;
  }

  // The stages of a block that has a processor to itself, if that gains slots: the only one there is, or one
  // beside which a second with the usual stages has no room.
  std::optional<int> stages(const GemmTiles& t) const {
    const bool by_threads = type.bits() == 32 && p.precision != Precision::tf32;
    if (by_threads) return std::nullopt;
    const std::int64_t rows = t.m * (p.a_twice ? 2 : 1) + t.n * (p.b_twice ? 2 : 1);
    const std::int64_t bytes_of_slot = rows * t.k * type.bits() / 8, staged = staged_bytes(t);
    if (!has_one_round(t) && 2 * (usual_stages * bytes_of_slot + staged) <= bytes_of_slots)
      return std::nullopt;
    const auto fitting = static_cast<int>((bytes_of_slots - staged) / bytes_of_slot);
    return fitting > usual_stages ? std::optional(std::min(fitting, most_stages)) : std::nullopt;
  }
  bool has_large_slots(const GemmTiles& t) const {
    constexpr int usual_row_bytes = 128;
    return type.bits() == 16 && t.k * type.bits() / 8 > usual_row_bytes;
  }
  bool has_one_round(const GemmTiles& t) const { return tiles(t) * t.splits <= p.processors; }

  // Microseconds of `work` of the processors and of reading the operands: memory works beside them, and they
  // never quite hide each other.
  double beside_memory(double work) const {
    const double elements = static_cast<double>(p.batch) * (p.m + p.n) * static_cast<double>(p.k);
    const double memory = elements * type.bits() / 8 / product_cost.bytes_of_microsecond;
    return std::cbrt(work * work * work + memory * memory * memory);
  }

  // How much longer a tile takes than its cost says, measured with few rows, 65 to 320: one of a single
  // round, if half or more of the last tile of rows is outside, which the copy engine fills with zeros; and
  // one of 192 rows where there are several rounds. And one of a split whose slots are so large that no more
  // than the usual ones fit: long sums wait for them.
  double slowness(const GemmTiles& t, bool alone) const {
    constexpr double of_few_slots = 1.3;
    if (!alone && t.splits > 1 && has_one_round(t) && has_large_slots(t)) return of_few_slots;
    return slowness_of_rows(t, alone);
  }
  double slowness_of_rows(const GemmTiles& t, bool alone) const {
    constexpr double filling = 1.25, filling_more = 1.35, of_rounds = 1.8, outside = 0.09,
                     outside_exchanged = 0.3;
    const double of_outside = static_cast<double>(t.m - 1 - (p.m - 1) % t.m) / t.m;
    if (exchanges(t)) return 1 + outside_exchanged * of_outside;
    if (has_middle_rows()) return 1 + outside * of_outside;
    const std::int64_t last = p.m % t.m;
    const bool fills =
        t.m == 128 && p.m > t.m && p.m <= gpu_table.most_of_few_rows && last > 0 && 2 * last <= t.m;
    if (alone) return !fills ? 1 : p.m < 2 * t.m ? filling : filling_more;
    return t.m == 192 ? of_rounds : 1;
  }

  // Microseconds.
  double estimate(const GemmTiles& t, const TileCost& c) const {
    const bool alone = has_one_round(t) && stages(t).has_value();
    const double sums = static_cast<double>(t.m) * t.n,
                 rounds = std::ceil(tiles(t) * t.splits / p.processors);
    const double busy =
        sums <= product_cost.few_sums && !alone ? std::max(rounds, product_cost.waiting) : rounds;
    const double inner = std::ceil(steps(t) / t.splits) * t.k;
    const double cost = (alone ? c.alone : c.cost) * slowness(t, alone);
    const double work = busy * inner * sums * cost * 1e-6 + rounds * sums * product_cost.store;
    const double time = product_cost.call + beside_memory(work);
    if (t.splits == 1) return time;
    const double splits = static_cast<double>(p.batch) * p.m * p.n * t.splits;
    return time + product_cost.sum + product_cost.split * t.splits + product_cost.partial * splits;
  }

  // Microseconds where the tiles of the last round are divided into `splits` along k.
  double estimate_of_tail(const GemmTiles& t, const TileCost& c, int splits) const {
    const double sums = static_cast<double>(t.m) * t.n,
                 left_over = tiles(t) - static_cast<double>(whole_tiles(t));
    const double rounds = static_cast<double>(whole_tiles(t)) / p.processors;
    const double cost = c.cost * slowness(t, false) * 1e-6, store = sums * product_cost.store;
    const double of_split = std::ceil(steps(t) / splits) * t.k * sums * cost + store,
                 whole = steps(t) * t.k * sums * cost + store;
    const double work = rounds * whole + std::ceil(left_over * splits / p.processors) * of_split;
    return product_cost.call + beside_memory(work) + product_cost.sum + product_cost.split * splits +
           product_cost.partial * left_over * sums * splits;
  }
  std::int64_t whole_tiles(const GemmTiles& t) const {
    return static_cast<std::int64_t>(tiles(t)) / p.processors * p.processors;
  }

  // Whether half of the tile, or more, would be outside.
  bool is_wasted(const GemmTiles& t) const {
    return (t.m > least_extent && t.m >= 2 * p.m) || (t.n > least_extent && t.n >= 2 * p.n);
  }

  // Splits only where tiles leave processors idle, and each has two steps.
  bool may_split(const GemmTiles& t) const {
    constexpr int most_of_middle_rows = 3;
    if (exchanges(t) && t.splits > 1) return false;
    if (has_middle_rows() && t.splits > most_of_middle_rows) return false;
    return t.splits == 1 || (tiles(t) < p.processors && 2 * t.splits <= steps(t));
  }
};

// Tiles whose last round is divided, if the plan without such takes longer by more than the estimate's error.
void divide_tail(const ProductPlanner& planner, ProductPlan& plan) {
  constexpr double least_gain = 1.04;
  constexpr int least_steps = 4;  // of a split
  double least = std::numeric_limits<double>::infinity();
  planner.for_each_tile([&](const TileCost& c) {
    const GemmTiles t = planner.tiles_of(c, 1);
    if (t.m == plan.tiles.m && t.n == plan.tiles.n && t.k == plan.tiles.k)
      least = planner.estimate(plan.tiles, c) / least_gain;
  });
  planner.for_each_tile([&](const TileCost& c) {
    const GemmTiles t = planner.tiles_of(c, 1);
    const std::int64_t whole = planner.whole_tiles(t);
    if (planner.exchanges(t)) return;
    if (whole == 0 || static_cast<double>(whole) == planner.tiles(t) || planner.is_wasted(t)) return;
    for (const int splits : split_counts) {
      if (splits == 1 || planner.steps(t) < least_steps * splits) continue;
      const double time = planner.estimate_of_tail(t, c, splits);
      if (time >= least) continue;
      least = time;
      plan = {t, std::nullopt, splits, whole};
    }
  });
}

void leave_room_for_two(GemmTiles& tiles) {
  constexpr int most = 128 * 128;
  while (tiles.m * tiles.n > most) (tiles.n >= tiles.m ? tiles.n : tiles.m) /= 2;
}

}  // namespace

ProductPlan plan_product_on_gpu(const ProductProblem& problem, DType type, const GemmTiles& given) {
  const ProductPlanner planner{problem, type, given};
  const auto tiles = costs_of(type, problem.precision);
  const auto counts =
      given.splits ? std::span<const int>(&given.splits, 1) : std::span<const int>(split_counts);
  Candidates<std::pair<GemmTiles, TileCost>, most_candidates> candidates;
  planner.for_each_tile([&](const TileCost& tile) {
    for (const int count : counts) {
      const GemmTiles own = planner.tiles_of(tile, count);
      if (planner.is_wasted(own) || (!given.splits && !planner.may_split(own))) break;
      candidates.add({own, tile});
    }
  });
  // If the tiles are given, all candidates may be half outside.
  if (candidates.empty()) candidates.add({planner.tiles_of(tiles.back(), counts[0]), tiles.back()});
  const GemmTiles best =
      best_of(candidates, [&](const auto& c) { return planner.estimate(c.first, c.second); }).first;
  ProductPlan plan{best, planner.stages(best)};
  if (problem.sums > 1) leave_room_for_two(plan.tiles);
  if (problem.may_divide_tail && type.bits() == 16 && !planner.has_middle_rows()) divide_tail(planner, plan);
  return plan;
}

}  // namespace tegula::ops

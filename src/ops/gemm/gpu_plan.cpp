// Tiles of a product on a GPU: candidates, an estimate of their time, the best.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "ops/gemm/plan.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

// A tile with the bytes of its rows along k, and the picoseconds of a processor for one of its
// multiplications: of a busy one, and of one that a block has alone, where loads run far ahead. Small tiles
// load more for each. Measured on an H200, as all constants here.
struct Candidate {
  int m, n, row_bytes;
  double cost, alone;
};
constexpr Candidate of_16_bits[] = {
    {128, 256, 128, 0.288, 0.288}, {128, 192, 128, 0.312, 0.312}, {128, 112, 128, 0.472, 0.368},
    {128, 96, 128, 0.480, 0.334},  {128, 128, 256, 0.387, 0.387}, {64, 128, 256, 0.425, 0.425},
    {128, 64, 256, 0.462, 0.462},  {64, 64, 256, 1.072, 0.509},   {32, 64, 256, 0.869, 0.763},
    {64, 32, 256, 0.869, 0.696},   {16, 64, 256, 1.551, 0.982},   {64, 16, 256, 1.551, 0.982}};
// Sums of 8-bit products take registers twice: once for what tensor cores add, once for what it is added to.
// Small tiles wait for their loads, which have half of the bytes.
constexpr Candidate of_8_bits[] = {
    {128, 192, 128, 0.200, 0.200}, {256, 128, 128, 0.207, 0.207}, {128, 128, 128, 0.230, 0.230},
    {64, 128, 128, 0.333, 0.333},  {64, 64, 128, 0.536, 0.333},   {32, 64, 128, 0.435, 0.382},
    {64, 32, 128, 0.435, 0.382},   {16, 64, 128, 0.775, 0.491},   {64, 16, 128, 0.775, 0.491}};
constexpr Candidate of_32_bits[] = {
    {128, 64, 128, 6, 8}, {64, 64, 128, 7, 9}, {16, 64, 128, 20, 25}, {64, 16, 128, 20, 25}};

constexpr int split_counts[] = {1, 2, 3, 4, 6, 8, 12, 16, 32};

// Microseconds: of any call, of a grid that adds parts, and of each part there.
constexpr double call_time = 6.1, sum_time = 1.8, part_time = 0.23;
// Microseconds for an element: of a tile that is stored, of a part that is written and read.
constexpr double store_time = 2e-5, partial_time = 1.4e-6;
constexpr double bytes_of_microsecond = 3.58e6;  // of memory
// Without loads that run far ahead, one block with few sums leaves a processor waiting so much longer than
// two.
constexpr int few_sums = 2048;
constexpr double waiting = 1.6;
// Slots that the compiler takes without being asked, and as many as pay.
constexpr int usual_stages = 4, most_stages = 10;

constexpr int least_extent = 16;

struct Planner {
  const GemmProblem& p;
  DType type;
  const GemmTiles& given;

  GemmTiles tiles_of(const Candidate& c, int splits) const {
    return {given.m ? given.m : c.m, given.n ? given.n : c.n,
            given.k ? given.k : c.row_bytes * 8 / type.bits(), splits};
  }
  double tiles(const GemmTiles& t) const {
    return static_cast<double>(p.batch) * std::ceil(static_cast<double>(p.m) / t.m) *
           std::ceil(static_cast<double>(p.n) / t.n);
  }
  double steps(const GemmTiles& t) const { return std::ceil(static_cast<double>(p.k) / t.k); }

  // Of a block that has a processor alone, where it gains slots by that.
  std::optional<int> stages(const GemmTiles& t) const {
    if (type.bits() == 32 || tiles(t) * t.splits > p.processors) return std::nullopt;
    const std::int64_t stored = std::int64_t{t.m} * t.n * (t.splits > 1 ? 4 : p.stored_bytes);
    const std::int64_t slot = std::int64_t{t.m + t.n} * t.k * type.bits() / 8;
    const auto fitting = static_cast<int>((bytes_of_block - stored) / slot);
    return fitting > usual_stages ? std::optional(std::min(fitting, most_stages)) : std::nullopt;
  }

  // Microseconds. Memory and processors work side by side, and never quite hide each other.
  double estimate(const GemmTiles& t, const Candidate& c) const {
    const bool alone = stages(t).has_value();
    const double sums = static_cast<double>(t.m) * t.n,
                 rounds = std::ceil(tiles(t) * t.splits / p.processors);
    const double busy = sums <= few_sums && !alone ? std::max(rounds, waiting) : rounds;
    const double inner = std::ceil(steps(t) / t.splits) * t.k;
    const double work = busy * inner * sums * (alone ? c.alone : c.cost) * 1e-6 + rounds * sums * store_time;
    const double elements = static_cast<double>(p.batch) * (p.m + p.n) * static_cast<double>(p.k);
    const double memory = elements * type.bits() / 8 / bytes_of_microsecond;
    const double time = call_time + std::cbrt(work * work * work + memory * memory * memory);
    if (t.splits == 1) return time;
    const double parts = static_cast<double>(p.batch) * p.m * p.n * t.splits;
    return time + sum_time + part_time * t.splits + partial_time * parts;
  }

  // Whether half of the tile, or more, would lie outside.
  bool is_wasted(const GemmTiles& t) const {
    return (t.m > least_extent && t.m >= 2 * p.m) || (t.n > least_extent && t.n >= 2 * p.n);
  }

  // Parts only where tiles leave processors idle, and each has two steps.
  bool may_split(const GemmTiles& t) const {
    return t.splits == 1 || (tiles(t) < p.processors && 2 * t.splits <= steps(t));
  }
};

}  // namespace

GpuGemmPlan plan_gemm_on_gpu(const GemmProblem& problem, DType type, const GemmTiles& given) {
  const Planner planner{problem, type, given};
  const auto candidates = type.bits() == 8    ? std::span<const Candidate>(of_8_bits)
                          : type.bits() == 16 ? std::span<const Candidate>(of_16_bits)
                                              : std::span<const Candidate>(of_32_bits);
  const auto counts =
      given.splits ? std::span<const int>(&given.splits, 1) : std::span<const int>(split_counts);
  GemmTiles best = planner.tiles_of(candidates.back(), counts[0]);
  double best_time = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates)
    for (const int count : counts) {
      const GemmTiles tiles = planner.tiles_of(candidate, count);
      if (planner.is_wasted(tiles) || (!given.splits && !planner.may_split(tiles))) break;
      const double time = planner.estimate(tiles, candidate);
      if (time < best_time) best = tiles, best_time = time;
    }
  return {best, planner.stages(best)};
}

}  // namespace tegula::ops

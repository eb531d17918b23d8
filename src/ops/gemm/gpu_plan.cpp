// Tiles of a product on a GPU: candidates, an estimate of their time, the best.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "ops/pieces/plan.hpp"
#include "ops/gemm/plan.hpp"

namespace tegula::ops {

namespace {

// A tile with the bytes of its rows along k, and the picoseconds that a busy processor needs for one of its
// multiplications: small ones load more for each. Measured on an H200, as all constants here.
struct Candidate {
  int m, n, row_bytes;
  double cost;
};
constexpr Candidate of_16_bits[] = {{128, 256, 128, 0.288}, {128, 192, 128, 0.315}, {128, 128, 256, 0.389},
                                    {64, 128, 256, 0.420},  {128, 64, 256, 0.459},  {32, 64, 256, 0.864},
                                    {64, 32, 256, 0.864},   {16, 64, 256, 1.534},   {64, 16, 256, 1.534}};
// Sums of 8-bit products take registers twice: once for what tensor cores add, once for what it is added to.
// Small tiles wait for their loads, which have half of the bytes.
constexpr Candidate of_8_bits[] = {{128, 192, 128, 0.200}, {256, 128, 128, 0.207}, {128, 128, 128, 0.230},
                                   {64, 128, 128, 0.333},  {32, 64, 128, 0.432},   {64, 32, 128, 0.432},
                                   {16, 64, 128, 0.767},   {64, 16, 128, 0.767}};
constexpr Candidate of_32_bits[] = {{64, 64, 64, 20}};

constexpr int split_counts[] = {1, 2, 3, 4, 6, 8, 12, 16, 32};

// Microseconds: of any call, of a grid that adds parts, and of each part there.
constexpr double call_time = 6.7, sum_time = 1.6, part_time = 0.2;
// Microseconds for an element: of a tile that is stored, of a part that is written and read.
constexpr double store_time = 3.2e-6, partial_time = 1.5e-6;
constexpr double bytes_of_microsecond = 3.64e6;  // of memory
// One block with few sums leaves a processor waiting so much longer than two do.
constexpr int few_sums = 2048;
constexpr double alone = 1.6;

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

  // Microseconds. Memory and processors work side by side, and never quite hide each other.
  double estimate(const GemmTiles& t, double cost) const {
    const double sums = static_cast<double>(t.m) * t.n,
                 rounds = std::ceil(tiles(t) * t.splits / p.processors);
    const double busy = sums <= few_sums ? std::max(rounds, alone) : rounds;
    const double inner = std::ceil(steps(t) / t.splits) * t.k;
    const double work = busy * inner * sums * cost * 1e-6 + rounds * sums * store_time;
    const double elements = static_cast<double>(p.batch) * (p.m + p.n) * static_cast<double>(p.k);
    const double memory = elements * type.bits() / 8 / bytes_of_microsecond;
    const double time = call_time + std::cbrt(work * work * work + memory * memory * memory);
    if (t.splits == 1) return time;
    const double parts = static_cast<double>(p.batch) * p.m * p.n * t.splits;
    return time + sum_time + part_time * t.splits + partial_time * parts;
  }

  // Parts only where tiles leave processors idle, and each has two steps.
  bool may_split(const GemmTiles& t) const {
    return t.splits == 1 || (tiles(t) < p.processors && 2 * t.splits <= steps(t));
  }
};

}  // namespace

GemmTiles plan_gemm_on_gpu(const GemmProblem& problem, DType type, const GemmTiles& given) {
  const Planner planner{problem, type, given};
  const auto candidates = type.bits() == 8    ? std::span<const Candidate>(of_8_bits)
                          : type.bits() == 16 ? std::span<const Candidate>(of_16_bits)
                                              : std::span<const Candidate>(of_32_bits);
  const auto counts =
      given.splits ? std::span<const int>(&given.splits, 1) : std::span<const int>(split_counts);
  GemmTiles best = planner.tiles_of(candidates[0], counts[0]);
  double best_time = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates)
    for (const int count : counts) {
      const GemmTiles tiles = planner.tiles_of(candidate, count);
      if (!given.splits && !planner.may_split(tiles)) break;
      const double time = planner.estimate(tiles, candidate.cost);
      if (time < best_time) best = tiles, best_time = time;
    }
  return best;
}

}  // namespace tegula::ops

// Tiles of a product on a GPU: candidates, an estimate of their time, the best.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "ops/gemm/plan.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr int split_counts[] = {1, 2, 3, 4, 6, 8, 12, 16, 32};

constexpr GpuProduct cost = gpu_table.product;

struct Planner {
  const GemmProblem& p;
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

  // Microseconds. Memory and processors work side by side, and never quite hide each other.
  double estimate(const GemmTiles& t, double of_product) const {
    const double sums = static_cast<double>(t.m) * t.n,
                 rounds = std::ceil(tiles(t) * t.splits / p.processors);
    const double busy = sums <= cost.few_sums ? std::max(rounds, cost.alone) : rounds;
    const double inner = std::ceil(steps(t) / t.splits) * t.k;
    const double work = busy * inner * sums * of_product * 1e-6 + rounds * sums * cost.store;
    const double elements = static_cast<double>(p.batch) * (p.m + p.n) * static_cast<double>(p.k);
    const double memory = elements * type.bits() / 8 / cost.bytes_of_microsecond;
    const double time = cost.call + std::cbrt(work * work * work + memory * memory * memory);
    if (t.splits == 1) return time;
    const double parts = static_cast<double>(p.batch) * p.m * p.n * t.splits;
    return time + cost.sum + cost.part * t.splits + cost.partial * parts;
  }

  // Parts only where tiles leave processors idle, and each has two steps.
  bool may_split(const GemmTiles& t) const {
    return t.splits == 1 || (tiles(t) < p.processors && 2 * t.splits <= steps(t));
  }
};

}  // namespace

GemmTiles plan_gemm_on_gpu(const GemmProblem& problem, DType type, const GemmTiles& given) {
  const Planner planner{problem, type, given};
  const auto tiles = type.bits() == 8    ? std::span<const TileCost>(gpu_table.of_8_bits)
                     : type.bits() == 16 ? std::span<const TileCost>(gpu_table.of_16_bits)
                                         : std::span<const TileCost>(gpu_table.of_32_bits);
  const auto counts =
      given.splits ? std::span<const int>(&given.splits, 1) : std::span<const int>(split_counts);
  std::vector<std::pair<GemmTiles, double>> candidates;
  for (const TileCost& tile : tiles)
    for (const int count : counts) {
      const GemmTiles own = planner.tiles_of(tile, count);
      if (!given.splits && !planner.may_split(own)) break;
      candidates.emplace_back(own, tile.cost);
    }
  return best_of(candidates, [&](const auto& c) { return planner.estimate(c.first, c.second); }).first;
}

}  // namespace tegula::ops

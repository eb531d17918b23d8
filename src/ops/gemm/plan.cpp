#include "ops/gemm/plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

// Rows and columns that the product computes at a time (the AVX-512 micro-kernel); smaller ones divide
// better.
constexpr double block_bytes = 1.25 * 1024 * 1024;  // of a processor's second-level cache
// In units of one multiplication and addition of the micro-kernel.
constexpr double pack_cost = 16, store_cost = 24, block_cost = 100'000;

// Few, so that they can be built in.
constexpr GemmTiles usual_tiles[] = {
    {256, 512, 256}, {128, 256, 256}, {64, 128, 128}, {16, 256, 256}, {32, 64, 64}};

}  // namespace

double estimate(const GemmProblem& p, const GemmTiles& t) {
  const double m = t.m, n = t.n, k = t.k;
  if (4 * (m * n + m * k + n * k) > block_bytes) return std::numeric_limits<double>::infinity();
  const double blocks = static_cast<double>(p.batch) * std::ceil(static_cast<double>(p.m) / m) *
                        std::ceil(static_cast<double>(p.n) / n);
  const double inner = round_up(static_cast<double>(p.k), k);
  const double products = round_up(m, kernel_rows) * round_up(n, kernel_columns) * inner;
  // Every step along k reads and writes the sums once more.
  const double steps = inner / k;
  const double block =
      products + pack_cost * (m + n) * inner + store_cost * m * n * (1 + 0.25 * steps) + block_cost;
  return std::ceil(blocks / planned_processors) * block;
}

GemmTiles plan_gemm(const GemmProblem& problem, const GemmTiles& given) {
  GemmTiles best;
  double best_time = std::numeric_limits<double>::infinity();
  for (const GemmTiles& usual : usual_tiles) {
    const GemmTiles tiles{given.m ? given.m : usual.m, given.n ? given.n : usual.n,
                          given.k ? given.k : usual.k, std::max(1, given.splits)};
    const double time = estimate(problem, tiles);
    // Without one that fits, the smallest.
    if (time <= best_time) best = tiles, best_time = time;
  }
  return best;
}

}  // namespace tegula::ops

#include "ops/pieces/product_plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

// Few, so that they can be built in. Without one that fits, the first.
constexpr std::array<GemmTiles, 5> usual_product_tiles{
    {{32, 64, 64}, {16, 256, 256}, {64, 128, 128}, {128, 256, 256}, {256, 512, 256}}};

// Smaller ones with the same k, for threads that would wait for the last. Below so small a part of a tile
// they lose more by copying operands again.
constexpr std::array<GemmTiles, 3> even_product_tiles{{{128, 256, 256}, {128, 128, 256}, {64, 128, 256}}};
constexpr int smallest_part = 8;

double blocks_of(const ProductProblem& p, const GemmTiles& t) {
  return static_cast<double>(p.batch) * std::ceil(static_cast<double>(p.m) / t.m) *
         std::ceil(static_cast<double>(p.n) / t.n);
}

// Relative time of a block.
double time_of_block(const ProductProblem& p, const GemmTiles& t) {
  const double m = t.m, n = t.n, k = t.k;
  const CpuProduct& cost = cpu_table.product;
  const double inner = round_up(static_cast<double>(p.k), k);
  const double products = round_up(m, kernel_rows) * round_up(n, kernel_columns) * inner;
  // Every step along k reads and writes the sums once more.
  const double steps = inner / k;
  return products + cpu_table.pack * (m + n) * inner + cost.store * m * n * (1 + 0.25 * steps) + cost.block;
}

// Blocks differ in length, and threads wait for the last one: a part of a block, however many rounds there
// are.
double rounds_of(const ProductProblem& p, const GemmTiles& t) {
  if (p.threads == 1) return std::ceil(blocks_of(p, t) / planned_processors);
  return std::ceil(blocks_of(p, t) / p.threads) + cpu_table.product.wait;
}

GemmTiles limited(const ProductProblem& p, GemmTiles tiles) {
  if (p.most_rows > 0) tiles.m = std::min(tiles.m, p.most_rows);
  if (p.most_columns > 0) tiles.n = std::min(tiles.n, p.most_columns);
  return tiles;
}

// The tiles, or smaller ones that divide the work among the threads more evenly.
GemmTiles evened(const ProductProblem& problem, const GemmTiles& tiles) {
  Candidates<GemmTiles, even_product_tiles.size() + 1> candidates{tiles};
  for (const GemmTiles& even : even_product_tiles)
    if (even.k == tiles.k && even.m <= tiles.m && even.n <= tiles.n &&
        smallest_part * even.m * even.n >= tiles.m * tiles.n)
      candidates.add({even.m, even.n, even.k, tiles.splits});
  return best_of(candidates, [&](const GemmTiles& t) { return estimate(problem, t); });
}

}  // namespace

double estimate(const ProductProblem& p, const GemmTiles& t) {
  const double m = t.m, n = t.n, k = t.k;
  if (4 * (m * n + m * k + n * k) > cpu_table.product.most_bytes) return never;
  return rounds_of(p, t) * time_of_block(p, t);
}

ProductPlan plan_product(const ProductProblem& problem, const GemmTiles& given) {
  Candidates<GemmTiles, usual_product_tiles.size()> candidates;
  for (const GemmTiles& usual : usual_product_tiles)
    candidates.add({given.m ? given.m : usual.m, given.n ? given.n : usual.n, given.k ? given.k : usual.k,
                    std::max(1, given.splits)});
  ProductProblem of_any_threads = problem;
  of_any_threads.threads = 1;
  const GemmTiles tiles =
      limited(problem, best_of(candidates, [&](const GemmTiles& t) { return estimate(of_any_threads, t); }));
  const bool may_be_evened = problem.threads > 1 && given.m == 0 && given.n == 0;
  return {may_be_evened ? evened(problem, tiles) : tiles};
}

}  // namespace tegula::ops

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

}  // namespace

double estimate(const ProductProblem& p, const GemmTiles& t) {
  const double m = t.m, n = t.n, k = t.k;
  const CpuProduct& cost = cpu_table.product;
  if (4 * (m * n + m * k + n * k) > cost.most_bytes) return never;
  const double blocks = static_cast<double>(p.batch) * std::ceil(static_cast<double>(p.m) / m) *
                        std::ceil(static_cast<double>(p.n) / n);
  const double inner = round_up(static_cast<double>(p.k), k);
  const double products = round_up(m, kernel_rows) * round_up(n, kernel_columns) * inner;
  // Every step along k reads and writes the sums once more.
  const double steps = inner / k;
  const double block =
      products + cpu_table.pack * (m + n) * inner + cost.store * m * n * (1 + 0.25 * steps) + cost.block;
  return std::ceil(blocks / planned_processors) * block;
}

ProductPlan plan_product(const ProductProblem& problem, const GemmTiles& given) {
  Candidates<GemmTiles, usual_product_tiles.size()> candidates;
  for (const GemmTiles& usual : usual_product_tiles)
    candidates.add({given.m ? given.m : usual.m, given.n ? given.n : usual.n, given.k ? given.k : usual.k,
                    std::max(1, given.splits)});
  return {best_of(candidates, [&](const GemmTiles& tiles) { return estimate(problem, tiles); })};
}

}  // namespace tegula::ops

// Tiles of a product on a GPU.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "ops/gemm/plan.hpp"

namespace tegula::ops {

namespace {

// The rate of a tile, relative to the largest: small ones load more for each product. Measured on an H100.
struct Candidate {
  int m, n;
  double rate;
};
constexpr Candidate by_tensor_cores[] = {{128, 256, 1.0}, {128, 192, 0.95}, {128, 128, 0.8}, {64, 128, 0.6}};
// Sums of 8-bit products take registers twice: once for what tensor cores add, once for what it is added to.
constexpr Candidate of_8_bits[] = {{128, 192, 1.0}, {256, 128, 0.965}, {128, 128, 0.87}, {64, 128, 0.6}};

}  // namespace

GemmTiles plan_gemm_on_gpu(const GemmProblem& p, DType type, const GemmTiles& given) {
  GemmTiles best{64, 64, 16, 1};
  if (type.bits() <= 16) {
    const auto candidates = type.bits() == 8 ? std::span<const Candidate>(of_8_bits) : by_tensor_cores;
    double best_time = std::numeric_limits<double>::infinity();
    for (const Candidate& c : candidates) {
      const double tiles = static_cast<double>(p.batch) * std::ceil(static_cast<double>(p.m) / c.m) *
                           std::ceil(static_cast<double>(p.n) / c.n);
      const double time = std::ceil(tiles / p.processors) * c.m * c.n / c.rate;
      if (time < best_time) best = {c.m, c.n, 1024 / type.bits(), 1}, best_time = time;
    }
  }
  if (given.m) best.m = given.m;
  if (given.n) best.n = given.n;
  if (given.k) best.k = given.k;
  best.splits = std::max(1, given.splits);
  return best;
}

}  // namespace tegula::ops

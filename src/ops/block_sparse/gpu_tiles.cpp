#include "ops/block_sparse/gpu_tiles.hpp"

#include <algorithm>
#include <numeric>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr int row_unit = 8, rows_of_warp = 16, k_of_product = 16;
constexpr GpuBlockSparse table = gpu_table.block_sparse;

struct TileRows {
  int pack = 1, queries = 1;
  double cost = 1;  // of a row of a tile, beside one of two warp groups
};
using RowCandidates = Candidates<TileRows, 8>;

int ceildiv(int a, int b) { return (a + b - 1) / b; }
int round_up(int value, int step) { return ceildiv(value, step) * step; }

// The cost of a block of queries per head: that of all rows of its tiles.
double estimate(const TileRows& c, int queries) { return c.cost * ceildiv(queries, c.queries) * c.queries; }
TileRows best_rows(const RowCandidates& candidates, int queries) {
  return best_of(candidates, [&](const TileRows& rows) { return estimate(rows, queries); });
}

// Whether steps of keys and features of values are rows of whole warp groups.
bool multiplies_transpose(const BlockSparseKernel& c) {
  return (c.k_block % warp_group_rows == 0 || warp_group_rows % c.k_block == 0) &&
         c.dim_v % warp_group_rows == 0;
}

// Rows of one warp group read keys and values as often as those of two, and fewer multiply the transpose,
// whose weights pass through shared memory.
void add_candidates(int pack, int queries, const BlockSparseKernel& c, RowCandidates& to) {
  const int dim = std::max(c.dim, c.dim_v);
  const auto add = [&](int rows, double cost) {
    if (rows % pack == 0 && pack <= rows) to.add({pack, rows / pack, cost});
  };
  if (most_tensor_rows(dim) > warp_group_rows) {
    add(most_tensor_rows(dim), 1);
    add(warp_group_rows, table.of_one_group);
    if (dim <= 128) add(table.joined_groups * warp_group_rows, 1);
  } else {
    add(warp_group_rows, 1);
  }
  const int whole = row_unit / std::gcd(row_unit, pack), few = round_up(queries, whole);
  if (few * pack < warp_group_rows && multiplies_transpose(c)) to.add({pack, few, table.of_fewer_rows});
}

// A block in equal steps, or whole blocks: as many as fill a step, or else leave columns empty.
int keys_of_step(int block, int most) {
  if (block > most) {
    const int steps = ceildiv(block, most);
    for (int n = steps; block >= n * most / 2; ++n)
      if (block % (n * k_of_product) == 0) return block / n;
    return round_up(ceildiv(block, steps), k_of_product);
  }
  for (int blocks = most / block; blocks * block * 2 > most; --blocks)
    if (blocks * block % k_of_product == 0) return blocks * block;
  return round_up(most / block * block, k_of_product);
}

}  // namespace

bool multiplies_by_groups(const BlockSparseKernel& kernel) {
  return kernel.compute.bits() == 16 && kernel.dim % 16 == 0 && kernel.dim_v % 16 == 0;
}

int most_tensor_rows(int dim) { return dim <= most_dim_of_128_rows ? 2 * warp_group_rows : warp_group_rows; }

void plan_tensor_rows(BlockSparseCall& call) {
  BlockSparseKernel& kernel = call.kernel;
  const std::int64_t group = call.tensors.group();
  const int rows = most_tensor_rows(std::max(kernel.dim, kernel.dim_v));
  // Fewer queries than a block has need no larger tile.
  const auto queries =
      static_cast<int>(std::clamp<std::int64_t>(call.longest, 1, std::int64_t{kernel.q_block}));
  const bool shared = !call.per_query_head && group > 1 && group <= rows;
  // A block that fills a tile leaves the heads of a group apart, where that costs nothing.
  const bool fills = kernel.q_block >= rows;
  RowCandidates candidates;
  if (fills) add_candidates(1, queries, kernel, candidates);
  if (shared) add_candidates(static_cast<int>(group), queries, kernel, candidates);
  if (!fills) add_candidates(1, queries, kernel, candidates);
  const TileRows best = best_rows(candidates, queries);
  kernel.pack = best.pack, kernel.queries = best.queries;
}

void plan_tensor_keys(BlockSparseKernel& kernel) {
  const int dim = std::max(kernel.dim, kernel.dim_v);
  const bool wide = kernel.rows() > warp_group_rows && dim <= 128;
  const bool joined = kernel.rows() == table.joined_groups * warp_group_rows;
  int most = wide && !joined ? 128 : 64;
  // One step of a block instead of two half-empty ones.
  if (dim <= 128 && kernel.k_block > most) most = std::max(most, table.most_keys_of_joined_groups);
  kernel.keys = keys_of_step(kernel.k_block, most);
}

// Heads share a tile of a warp group if they fill it, or else of fewer rows, which warps multiply by
// themselves: small blocks would leave most rows of a head's own tile empty.
void plan_gradient_rows(const BlockSparseCall& call, BlockSparseKernel& kernel) {
  const bool shared =
      !call.per_query_head && call.tensors.group() > 1 && call.tensors.group() <= warp_group_rows;
  RowCandidates candidates;
  candidates.add({1, warp_group_rows});
  if (shared) {
    const int group = static_cast<int>(call.tensors.group()),
              step = rows_of_warp / std::gcd(rows_of_warp, group);
    if (warp_group_rows % group == 0)
      candidates.add({group, warp_group_rows / group});
    else if (step * group < warp_group_rows)
      candidates.add({group, warp_group_rows / (step * group) * step, table.of_fewer_rows});
  }
  const TileRows best = best_rows(candidates, kernel.q_block);
  kernel.pack = best.pack, kernel.queries = best.queries;
}

void plan_gradient_keys(BlockSparseKernel& kernel) {
  kernel.keys = keys_of_step(kernel.k_block, warp_group_rows);
}

}  // namespace tegula::ops

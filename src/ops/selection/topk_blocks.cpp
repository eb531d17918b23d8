#include <algorithm>
#include <limits>

#include "ops/schema/schema.hpp"
#include "ops/selection/kernels.hpp"
#include "ops/selection/selection.hpp"

namespace tegula::ops {

namespace {

void run(const Bound<TopkBlocks>& c, Launch& launch) {
  const TopkKernel kernel{
      .first = c->keep_first, .diagonal = c->keep_diagonal, .columns = c.dim("k_blocks") <= 32 ? 32 : 256};
  launch(kernel, topk_kernel,
         {{"scores", c.rows("scores", 3)},
          {"out", c.rows("out", 3)},
          {"q_block", c->q_block_size},
          {"k_block", c->k_block_size},
          {"offset", c->key_offset}});
}

// The `count` best of a row, in order of their number.
std::vector<std::int64_t> best_blocks(const std::vector<double>& scores, std::int64_t count) {
  std::vector<std::int64_t> order;
  for (std::size_t j = 0; j < scores.size(); ++j)
    if (scores[j] > -std::numeric_limits<double>::infinity()) order.push_back(static_cast<std::int64_t>(j));
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(count)));
  std::sort(order.begin(), order.end());
  return order;
}

// Kept blocks go first: they get a score that no f32 has.
std::vector<double> keys_of(const TopkBlocks& op, const double* scores, std::int64_t blocks,
                            std::int64_t row) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto last = static_cast<double>((row + 1) * op.q_block_size - 1 + op.key_offset);
  const double diagonal = std::min(std::floor(last / op.k_block_size), static_cast<double>(blocks - 1));
  std::vector<double> keys;
  for (std::int64_t j = 0; j < blocks; ++j) {
    const bool kept = (op.keep_first && j == 0) || (op.keep_diagonal && static_cast<double>(j) == diagonal);
    const bool none = std::isnan(scores[j]) || scores[j] == -infinity;
    keys.push_back(none ? -infinity : kept ? infinity : std::min(scores[j], 1e300));
  }
  return keys;
}

void formula(const Bound<TopkBlocks>& c, Exact& exact) {
  const std::int64_t q_blocks = c.dim("q_blocks"), blocks = c.dim("k_blocks"), count = c->count;
  const double* scores = exact.data("scores");
  auto* out = exact["out"].data_as<std::int32_t>();
  std::fill_n(out, exact["out"].nelements(), -1);
  for (std::int64_t row = 0; row < c.dim("batch") * c.dim("heads") * q_blocks; ++row) {
    std::int32_t* next = out + row * count;
    for (std::int64_t block : best_blocks(keys_of(*c, scores + row * blocks, blocks, row % q_blocks), count))
      *next++ = static_cast<std::int32_t>(block);
  }
}

}  // namespace

const OperatorSchema& topk_blocks_schema() {
  using Op = TopkBlocks;
  constexpr double largest = (1 << 29) - 1;
  static const OperatorSchema table =
      Schema<Op>("topk_blocks", "numbers of the largest block scores of every row, ascending")
          .in(&Op::scores, "scores", "batch heads q_blocks k_blocks", is(f32),
              "-inf and NaN are never chosen")
          .range("-9", "9")
          .option(&Op::count, "count", "blocks of a row")
          .needed()
          .option(&Op::keep_first, "keep_first", "block 0 is chosen before all others")
          .option(&Op::keep_diagonal, "keep_diagonal", "and so is the block at the last query of the row")
          .option(&Op::q_block_size, "q_block_size", "queries of a block, for the diagonal", block_size)
          .option(&Op::k_block_size, "k_block_size", "keys of a block, for the diagonal", block_size)
          .option(&Op::key_offset, "key_offset", "keys - queries, for the diagonal",
                  between(-largest, largest, "a number below 2^29 in magnitude", "give keys - queries"))
          // Lists of calls of many lengths may have one width.
          .let("most", "max(k_blocks, 4096)")
          .require("count", "0 <= count & count <= most",
                   "a number of blocks from 0 to {most}: there are {k_blocks}",
                   "choose no more than there are")
          .out(&Op::out, "out", "batch heads q_blocks count", is(i32), "block numbers, -1 where fewer exist")
          .source(
              "the selection of Yuan et al. 2025, Native Sparse Attention, with its first and local blocks")
          .no_gradient("it chooses")
          .examples({{"small", "batch=1 heads=1 q_blocks=2 k_blocks=6 count=4"},
                     {"ties", "batch=1 heads=2 q_blocks=5 k_blocks=40 count=7"},
                     {"more_than_blocks", "batch=2 heads=1 q_blocks=3 k_blocks=6 count=9"},
                     {"kept", "batch=1 heads=1 q_blocks=12 k_blocks=12 count=3 keep_first keep_diagonal"}})
          .measured({{"1024_of_1024x1024", "batch=1 heads=1 q_blocks=1024 k_blocks=1024 count=100"},
                     {"16_of_8x256x256", "batch=1 heads=8 q_blocks=256 k_blocks=256 count=16"}})
          .run(run, formula);
  return table;
}

Tensor topk_blocks(const TensorRef& scores, std::int64_t count, const TopkBlocksOptions& options) {
  const TopkBlocks op{options, scores, count};
  return run_call(topk_blocks_schema(), &op).output("out");
}

}  // namespace tegula::ops

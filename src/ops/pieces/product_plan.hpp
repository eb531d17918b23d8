// The tile of a product: candidates, an estimate of their time, the best.
#pragma once
#include <cstdint>
#include <optional>

#include "tegula/dtype.hpp"
#include "tegula/ops/products.hpp"

namespace tegula::ops {

struct ProductProblem {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  // Processors of a GPU; plans for the CPU do not depend on them.
  int processors = 1;
  // Threads of the CPU that share the blocks. Rows and columns of tiles depend on them, steps along k do not,
  // so that results are the same to the last bit.
  int threads = 1;
  int most_rows = 0, most_columns = 0;  // of a tile on the CPU; 0 is any number
  int stored_bytes = 2;                 // of an element that a block stores
  Precision precision = Precision::ieee;
  // Whether a slot has a tile of it twice: as its tensor has it, and transposed for the tensor cores.
  bool a_twice = false, b_twice = false;
  bool may_divide_tail = false;    // whether the program can
  bool may_have_any_rows = false;  // tiles of a, because its rows lie along k
  int sums = 1;                    // of a tile that a block has: two with those of gates
};

struct ProductPlan {
  GemmTiles tiles;
  // The stages of a block that has a processor of a GPU, and its shared memory, to itself; otherwise the
  // compiler's choice.
  std::optional<int> stages = {};
  // Splits of k of the tiles that whole rounds of a GPU's processors leave over, and how many are before
  // them.
  int tail_splits = 1;
  std::int64_t whole_tiles = 0;
};

// Relative time of a call on the CPU with these tiles; infinite where a block does not fit its cache.
double estimate(const ProductProblem& problem, const GemmTiles& tiles);
// The extents that `given` leaves open are chosen.
ProductPlan plan_product(const ProductProblem& problem, const GemmTiles& given);
// The same for a GPU; `type` is that of the tiles.
ProductPlan plan_product_on_gpu(const ProductProblem& problem, DType type, const GemmTiles& given);

}  // namespace tegula::ops

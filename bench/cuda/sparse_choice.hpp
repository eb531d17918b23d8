// Which blocks of keys each block of queries chooses in the measurements of block-sparse attention.
#pragma once
#include <cstdint>

#include "nsa_selection.hpp"
#include "tegula/tensor.hpp"

namespace tegula::bench {

// One block of every `period` is chosen, evenly over the keys; under a causal mask, of those that begin
// before the row ends, and the last of them always. Or, as many from scores that drift from row to row.
struct SparseShape {
  std::int64_t length = 49152, heads = 64, kv_heads = 8, dim = 128;
  std::int64_t q_block = 128, k_block = 1, period = 10;
  bool causal = false;
  Drift drift = Drift::independent;

  std::int64_t q_blocks() const { return (length + q_block - 1) / q_block; }
  std::int64_t k_blocks() const { return (length + k_block - 1) / k_block; }
  std::int64_t entries() const { return k_blocks() / period + (causal ? 1 : 0); }
  // Blocks that a row may choose from, and how many it does.
  std::int64_t seen(std::int64_t row) const {
    return causal ? std::min(k_blocks(), ((row + 1) * q_block + k_block - 1) / k_block) : k_blocks();
  }
};

struct SparseChoice {
  Tensor indices;      // i32 [1, kv heads, q_blocks, entries], -1 after the last
  double overlap = 0;  // share of a row's blocks that the next row chooses too
  double pairs = 0;    // of a query and a key that it sees, of one query head of each key head
  double nominal = 0;  // the same without the mask: all keys of what is chosen
};

SparseChoice choose_blocks(const SparseShape& shape);

}  // namespace tegula::bench

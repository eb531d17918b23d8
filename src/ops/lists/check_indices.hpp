// Finds an entry of lists of blocks that names no block, on the device that runs the operator.
#pragma once
#include "ops/schema/launch.hpp"

namespace tegula::ops {

struct IndexCheck {
  std::string name;  // of the argument
  // [batch, rows, heads, entries], packed [rows, heads, entries]; with blocks of queries [sequences, rows,
  // …].
  TensorRef indices;
  std::optional<TensorRef> counts = {};  // the same without entries
  int block = 64;                        // keys of a block
  std::int64_t keys = 0;                 // of a batch
  TensorRef q_begin = {}, k_begin = {};  // of packed sequences
  std::int64_t longest = 0;              // the most rows of a packed sequence
  bool heads_first = false;              // the caller has heads before rows
  bool ascending = false;                // used entries ascend, and −1 is none
  int q_block = 0;                       // queries of a row; 0: of packed sequences each token has one
};

// An ArgumentError that names the first entry, by rows, that counts and is neither −1 nor the number of a
// block.
void check_indices(const IndexCheck& check, Launch& launch);

}  // namespace tegula::ops

// The tiles of attention over selected blocks.
#pragma once
#include <cstdint>

#include "tegula/dtype.hpp"
#include "tegula/ops/heads.hpp"

namespace tegula::ops {

struct NsaProblem {
  std::int64_t group = 1;        // query heads of a key head
  bool per_query_head = false;   // they select differently
  std::int64_t tokens = 1;       // the most of a sequence
  std::int64_t all_tokens = 1;   // of all sequences, for each key head
  int block = 64, entries = 16;  // of a row
  int dim = 64, dim_v = 64;
  bool causal = true, repeats = false;
};

struct NsaPlan {
  int pack = 1, queries = 1, keys = 64;
  int fewest = 1, least_gain = 0;  // see NsaKernel
};

// The extents that `given` leaves open are chosen.
NsaPlan plan_nsa(const NsaProblem& problem, const AttentionTiles& given);
// On a GPU; `type` is that of the tiles. `pack` may be larger than the group.
NsaPlan plan_nsa_on_gpu(const NsaProblem& problem, DType type, const AttentionTiles& given);

}  // namespace tegula::ops

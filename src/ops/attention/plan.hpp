// The tiles of attention: candidates, an estimate of their time, the best.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>

#include "tegula/dtype.hpp"
#include "tegula/ops/heads.hpp"

namespace tegula::ops {

struct AttentionProblem {
  std::int64_t sequences = 1, heads = 1;  // independent of each other: batch, query heads
  std::int64_t group = 1;                 // query heads of a key head
  std::int64_t queries = 1, keys = 1;     // the most of a sequence
  std::int64_t packed = 1;                // sequences that share the keys
  std::int64_t all_queries = 1;           // of all sequences
  std::int64_t seen = 1;                  // the most keys of a query
  std::int64_t left = -1, right = -1;     // of its position, -1: all
  int dim = 64, dim_v = 64;
  bool as_they_are = false;         // keys and values of contiguous rows, which no thread converts
  bool by_pairs = false;            // on a CPU: products of bf16 by its instructions
  double merge_steps_of_split = 0;  // what a split more costs the merge, in steps of keys
  std::int64_t room = std::numeric_limits<std::int64_t>::max();  // shared memory of a GPU's block

  // Tiles of queries of all heads, where so many heads of a group share one.
  std::int64_t head_tiles(int pack) const {
    const std::int64_t own = std::max<std::int64_t>(group, 1);
    return heads / own * ((own + pack - 1) / pack);
  }
};

struct AttentionPlan {
  int queries = 0, keys = 0, pack = 1;
  int splits = 1;  // of the keys
};

// Relative time of a call on the CPU; infinite where a block does not fit its cache.
double estimate(const AttentionProblem& problem, const AttentionPlan& plan);
// The extents that `given` leaves open are chosen.
AttentionPlan plan_attention(const AttentionProblem& problem, const AttentionTiles& given);
// The scores that the tiles of a CPU form, by those that queries see; of no window.
double formed_by_seen(const AttentionProblem& problem, const AttentionPlan& plan);
// On a GPU; `type` is that of the tiles. Keys are divided where blocks are few.
AttentionPlan plan_attention_on_gpu(const AttentionProblem& problem, DType type, const AttentionTiles& given);
// What blocks give the processors to do: steps of each on the mean, and the part of the time that these take:
// the last round leaves processors without work, and under a mask all others may wait for the block that sees
// the most keys.
struct ProcessorLoad {
  double steps = 0, filled = 1;
};
ProcessorLoad load_of_processors(const AttentionProblem& problem, const AttentionPlan& plan);

}  // namespace tegula::ops

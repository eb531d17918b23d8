// Scores of key blocks for blocks of queries, from their means, and selection of the best per row.
#pragma once
#include "tegula/ops/heads.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// What represents a block of keys: the mean of its keys, or the key with the largest product.
enum class KeyProxy { mean, max };

struct BlockScores {
  TensorRef q = {}, k = {};
  Layout layout = Layout::bshd;
  int q_block_size = 64, k_block_size = 64;  // queries and keys per block
  // Blocks that no query of the row sees (aligned as in `attention`) have score −∞.
  bool causal = false;
  std::optional<float> scale = {};  // scale of the scores; default 1/√d
  KeyProxy proxy = KeyProxy::mean;
  bool per_kv_head = true;            // one row per group of query heads: their mean
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};

// scale · mean of a query block · mean of a key block: f32 [batch, heads, q_blocks, k_blocks], with the heads
// of k or of q. Alternatively, the largest product of a single key of the block replaces that of the mean; if
// causal, only keys that some query of the row sees are considered. q [batch, queries, heads, d] and k
// [batch, keys, kv heads, d] are as in `attention`; the last blocks may be shorter. Means are kept in f32.
// Throws an ArgumentError for wrong shapes, dtypes or options.
Tensor block_scores(const TensorRef& q, const TensorRef& k, BlockScores options = {});

struct TopkBlocks {
  TensorRef scores = {};
  std::int64_t count = 0;
  // Blocks that are always selected first unless their score is −∞: block 0, and the block of the last key at
  // or before the last query of the row, which q_block_size, k_block_size and key_offset (keys − queries)
  // determine.
  bool keep_first = false, keep_diagonal = false;
  int q_block_size = 64, k_block_size = 64;
  std::int64_t key_offset = 0;
  // With a share from 0 to 1: only the fewest blocks whose weights, exp(score), have this share of the row's
  // sum, those that are always selected among them. 0: `count` blocks, whatever they weigh.
  float share = 0;
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};

// The `count` largest scores of every row of f32 [batch, heads, q_blocks, k_blocks]: i32 [batch, heads,
// q_blocks, count], block numbers in ascending order, padded with −1 if there are fewer. Exact; of equal
// scores the lower block wins. Scores of −∞ and NaN are never selected. Throws an ArgumentError for wrong
// shapes or dtypes, and for a count that is negative or above both 4096 and the number of blocks.
Tensor topk_blocks(const TensorRef& scores, std::int64_t count, TopkBlocks options = {});

}  // namespace tegula::ops
TEGULA_API_END

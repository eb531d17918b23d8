// Which key blocks matter to a block of queries: scores of their means, and the best of a row.
#pragma once
#include "tegula/ops/heads.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// What stands for a block of keys: the mean of its keys, or that of its keys whose product is the largest.
enum class KeyProxy { mean, max };

struct BlockScores {
  TensorRef q = {}, k = {};
  Layout layout = Layout::bshd;
  int q_block_size = 64, k_block_size = 64;  // queries and keys of a block
  // Blocks that no query of the row sees (aligned as in `attention`) score −∞.
  bool causal = false;
  std::optional<float> scale = {};  // 1/√d unless given
  KeyProxy proxy = KeyProxy::mean;
  bool per_kv_head = true;            // one row for all query heads of a group: their mean
  std::optional<TensorRef> out = {};  // written instead of a new tensor
  Target target = Target::automatic();
};

// scale · mean of a query block · mean of a key block: f32 [batch, heads, q_blocks, k_blocks], heads of k, or
// of q; or with the largest product of a key of the block in place of that of their mean, of the keys that
// some query of the row sees where it is causal. q [batch, queries, heads, d] and k [batch, keys, kv heads,
// d] are as in `attention`; the last blocks may be short. Means are kept in f32. Wrong shapes, dtypes or
// options are an ArgumentError.
Tensor block_scores(const TensorRef& q, const TensorRef& k, BlockScores options = {});

struct TopkBlocks {
  TensorRef scores = {};
  std::int64_t count = 0;
  // Blocks that are chosen before all others, if their score is not −∞: block 0, and the block of the last
  // key that stands at or before the last query of the row, which q_block_size, k_block_size and key_offset
  // (keys − queries) determine.
  bool keep_first = false, keep_diagonal = false;
  int q_block_size = 64, k_block_size = 64;
  std::int64_t key_offset = 0;
  std::optional<TensorRef> out = {};  // written instead of a new tensor
  Target target = Target::automatic();
};

// The `count` largest scores of every row of f32 [batch, heads, q_blocks, k_blocks]: i32 [batch, heads,
// q_blocks, count], block numbers in ascending order, −1 after them where fewer exist. Exact; of equal scores
// the lower block wins. Scores of −∞ and NaN are never chosen. Wrong shapes, dtypes, a negative count or one
// above 4096 and the number of blocks are an ArgumentError.
Tensor topk_blocks(const TensorRef& scores, std::int64_t count, TopkBlocks options = {});

}  // namespace tegula::ops
TEGULA_API_END

// The lightning indexer of DeepSeek sparse attention (DeepSeek-AI 2025): logits for choosing keys,
// the choice of the largest, both in one call, and the same in two levels.
#pragma once
#include <cstdint>
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct IndexerOptions {
  // f32 [batch, keys]: factors of the logits of each key, such as the scales of 8-bit keys. Multiply scales
  // of queries into the weights.
  std::optional<TensorRef> k_scales = {};
  // i32 [batch, queries]: a query sees keys begins to ends − 1; default: all.
  std::optional<TensorRef> begins = {}, ends = {};
  // Query i is at position i + (keys − queries) and sees no later keys.
  bool causal = false;
  std::optional<TensorRef> logits = {};  // preallocated output
  Target target = Target::automatic();
};

// logits[i, n] = k_scales[n] · Σ over heads h of weights[i, h] · max(q[i, h] · k[n], 0): f32 [batch, queries,
// keys], −∞ where the query does not see the key. q [batch, queries, heads, d] and k [batch, keys, d] have
// one dtype, f32, f16, bf16 or e4m3; weights [batch, queries, heads] f32, f16 or bf16. All tensors may lack
// the batch dimension. Throws an ArgumentError for wrong shapes, dtypes or options.
Tensor indexer_logits(const TensorRef& q, const TensorRef& k, const TensorRef& weights,
                      const IndexerOptions& options = {});

struct TopkSelect {
  TensorRef scores = {};   // f32 [batch, rows, columns], or [rows, columns]
  std::int64_t count = 0;  // at most 4096
  // i32 [batch, rows]: the columns begins … ends − 1 from which a row chooses, all unless given.
  std::optional<TensorRef> begins = {}, ends = {};
  // i32 [batch, pages]: if given, column c is returned as page_table[c / page_size] · page_size + c %
  // page_size, the row of a paged cache, or as −1 if the table has no such page.
  std::optional<TensorRef> page_table = {};
  int page_size = 64;
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};

// The columns of the `count` largest scores of every row of f32 [batch, rows, columns], or [rows, columns]:
// i32 [batch, rows, count], in ascending order, then −1 where there are fewer. Exact and the same in every
// run: of equal scores the lower column wins, both zeros are equal, and −∞ and NaN are never chosen. count is
// at most 4096. Wrong shapes, dtypes or options are an ArgumentError.
Tensor topk_select(const TensorRef& scores, std::int64_t count, TopkSelect options = {});

struct IndexerTopk {
  TensorRef q = {}, k = {}, weights = {};           // as those of indexer_logits
  std::int64_t count = 0;                           // as that of topk_select
  std::optional<TensorRef> k_scales = {};           // as those of indexer_logits
  std::optional<TensorRef> begins = {}, ends = {};  // as those of indexer_logits
  bool causal = false;                              // as that of indexer_logits
  std::optional<TensorRef> page_table = {};         // as that of topk_select
  int page_size = 64;
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};

// topk_select(indexer_logits(q, k, weights), count): i32 [batch, queries, count]. Only the logits of some
// queries at a time, at most 256 MiB, are in memory.
Tensor indexer_topk(const TensorRef& q, const TensorRef& k, const TensorRef& weights, std::int64_t count,
                    IndexerTopk options = {});

struct IndexerBlocks {
  TensorRef q = {}, k = {}, weights = {};           // as those of indexer_logits
  TensorRef block_k = {};                           // [batch, blocks, d]
  std::int64_t count = 0;                           // as that of topk_select
  std::optional<TensorRef> k_scales = {};           // as those of indexer_logits
  std::optional<TensorRef> block_scales = {};       // f32 [batch, blocks]: the same of block_k
  std::optional<TensorRef> begins = {}, ends = {};  // as those of indexer_logits
  bool causal = false;                              // as that of indexer_logits
  std::int64_t block_count = 64;                    // blocks that a query chooses, at most 4096
  int block_size = 64;                              // keys of a block
  std::optional<TensorRef> out = {};                // written instead of a new tensor
  Target target = Target::automatic();
};

// indexer_topk in two levels. block_k [batch, ceil(keys / block_size), d] of k's dtype has a key for every
// block of keys, such as their mean. A query first chooses, by the logits of block_k, `block_count` of the
// blocks that contain a key that it sees, then the `count` largest logits among the keys of these blocks. The
// logits of other keys are not computed. Both choices are those of topk_select.
Tensor indexer_topk_of_blocks(const TensorRef& q, const TensorRef& k, const TensorRef& weights,
                              const TensorRef& block_k, std::int64_t count, IndexerBlocks options = {});

struct IndexerGradients {
  Tensor dq, dk, dweights, dk_scales;  // as q, k, weights and k_scales; no elements if the call has none
};
struct IndexerBackwardOptions {
  std::optional<TensorRef> dq = {}, dk = {}, dweights = {}, dk_scales = {};  // preallocated outputs
};

// The gradients of sum(dlogits · logits) over the keys that each query sees, with respect to q, k and
// weights, all f32, f16 or bf16. Bitwise reproducible. The `logits` option has no effect.
IndexerGradients indexer_logits_backward(const TensorRef& dlogits, const TensorRef& q, const TensorRef& k,
                                         const TensorRef& weights, const IndexerOptions& options = {},
                                         const IndexerBackwardOptions& gradients = {});

}  // namespace tegula::ops
TEGULA_API_END

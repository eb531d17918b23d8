// The tile program of the gradients of block-sparse attention.
#pragma once
#include "ops/block_sparse/kernel.hpp"
#include "ops/lists/inverse.hpp"
#include "ops/lists/walk.hpp"
#include "ops/pieces/gradient.hpp"

namespace tegula::ops {

struct BlockSparseBackwardKernel {
  BlockSparseKernel forward;    // also the tiles of the pass over queries
  int queries = 64, keys = 64;  // tiles of the pass over keys
  bool per_query_head = false;  // heads of a group choose differently
  bool dlse = false;
  bool one_pass =
      false;            // dq is summed over the blocks of keys in f32, in any order; blocks are not gathered
  bool direct = false;  // see GradientTiles
  // Tiles of keys that more blocks of queries chose begin before others, so that all end together.
  bool longest_first = false;
  // Splits into which each list of keys is divided if there are few tiles of keys; another grid adds their
  // sums.
  int splits = 1;
  int fold = 1;              // blocks of keys that share a list of queries
  int chunk = inverse_rows;  // blocks of queries whose entries are counted together

  GradientTiles query_tiles() const {
    return {forward.compute, forward.dim, forward.dim_v, forward.pack, forward.queries, forward.keys, direct};
  }
  GradientTiles key_tiles() const {
    return {forward.compute, forward.dim, forward.dim_v, forward.pack, queries, keys, direct};
  }
  // The step tile of the pass over keys.
  TileOfBlocks steps_of_keys() const { return {forward.q_block, queries, forward.listed.has_value()}; }
  // Keys of the blocks that share a list of queries.
  int span() const { return fold * forward.k_block; }
  auto fields() const {
    return std::tuple(forward, labelled("backward_q", queries), labelled("k", keys), labelled("f", fold),
                      labelled("p", splits), labelled("per_head", per_query_head), labelled("dlse", dlse),
                      labelled("one_pass", one_pass), labelled("direct", direct),
                      labelled("longest", longest_first),
                      labelled("c", chunk > inverse_rows ? std::optional(chunk) : std::nullopt));
  }
};

// Grids: delta of the queries; the lists transposed round; dq by tiles of queries; dk and dv by tiles of
// keys. No two blocks write one element, but in one pass, where the tiles of keys add to dq. Arguments: dout
// as out, then q, k, v, out, lse as in block_sparse_kernel, dq, dk, dv, choice [batch, kv heads, group if
// per_query_head or 1, q_blocks, entries], scale; then, where the instance has them, cap, counts [batch, kv
// heads, group or 1, q_blocks], dlse as lse, and those of packed sequences as in block_sparse_kernel, with
// span_owners behind block_owners.
lang::Kernel block_sparse_backward_kernel(const BlockSparseBackwardKernel& instance);

}  // namespace tegula::ops

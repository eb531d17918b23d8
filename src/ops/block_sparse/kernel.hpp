// The tile program of block-sparse attention.
#pragma once
#include <optional>

#include "ops/lists/walk.hpp"
#include "ops/pieces/score_cap.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

struct BlockSparseKernel {
  DType type = f32, compute = f32;
  int dim = 64, dim_v = 64;
  int q_block = 64, k_block = 64;
  int pack = 1;  // query heads of one group that share a tile
  int queries = 64, keys = 64;
  bool causal = false;
  ScoreCap softcap = ScoreCap::none;
  bool mask = false;    // the choice is a boolean mask, not a list
  bool counts = false;  // lists have lengths
  bool varlen = false;  // packed sequences
  int chunk = 1024;     // not listed: key blocks whose choice is kept at a time
  // Lists are made before, once for all tiles that share them, of so many blocks that are marked at a time:
  // for GPUs.
  std::optional<int> listed = {};
  // Every list of the choice is one already, with blocks that exist: none is made.
  bool ascending = false;
  // With lists, of packed sequences: another list says whose the blocks of queries are, and one of gradients
  // whose the keys; see PackedTiles.
  bool owned = false;
  // With lists: the choice has one member for all heads of a group, of which so many, which share list and
  // keys, have tiles that run at the same time.
  std::optional<int> together = {};

  int rows() const { return queries * pack; }
  // Tiles of a block of queries.
  int splits() const { return (q_block + queries - 1) / queries; }
  // The number of last blocks in a list that may have keys past the end, or keys that some query of the block
  // does not see.
  int last_blocks() const { return causal ? (q_block + k_block - 1) / k_block + 1 : 1; }
  // Several blocks of keys in a tile: copied one by one where they are few, else row by row. Columns after
  // them, or after what of a block a tile covers, stay empty.
  TileOfBlocks tile() const { return {k_block, keys, true}; }
  bool joins() const { return tile().joins(); }
  bool gathers() const { return tile().gathers() && !joins(); }
  auto fields() const {
    return std::tuple(type, compute, labelled("d", dim), labelled("v", dim_v), joined("b", q_block, k_block),
                      labelled("g", pack), labelled("q", queries), labelled("k", keys),
                      labelled("causal", causal), softcap, labelled("mask", mask), labelled("counts", counts),
                      labelled("listed", listed), labelled("c", listed ? std::nullopt : std::optional(chunk)),
                      labelled("ascending", ascending), labelled("one", together), labelled("owned", owned),
                      labelled("varlen", varlen));
  }
};

// Arguments: q [batch, queries, kv heads, group, d], k, v, out, lse [batch, kv heads, group, queries], choice
// [batch, kv heads, group, q_blocks, entries] (i32, or boolean over all key blocks), scale as in
// attention_kernel; then, where the instance has them, cap, counts [batch, kv heads, group, q_blocks].
// With pack > 1 the lists of group member 0 are those of all; with `together` there are no others. Packed
// sequences: q, k, v, out and lse have no batch dimension, that of choice and counts is the sequences', and
// last stand q_begin, k_begin [sequences + 1], the most queries and keys of a sequence, and block_owners.
lang::Kernel block_sparse_kernel(const BlockSparseKernel& instance);

}  // namespace tegula::ops

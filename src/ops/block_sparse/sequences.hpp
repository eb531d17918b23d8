// The sequences of a tile program of block-sparse attention: those of a batch, which have equal lengths, or
// packed ones. Each has its own rows of the selection, starting with its first query.
#pragma once
#include <optional>

#include "ops/block_sparse/kernel.hpp"
#include "ops/lists/packed_tiles.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

// Asserts what the lists promise of a packed sequence.
void assert_listed(const lang::Expr& queries, const lang::Expr& most);

class BlockSparseSequences {
 public:
  explicit BlockSparseSequences(const BlockSparseKernel& instance) : c(instance) {}
  // Arguments of packed sequences, after all others: where they begin, and the most queries and keys of one.
  void declare();
  // A last one, where blocks are listed: whose the spans of so many keys are.
  void declare_spans(int keys);

  // Dimensions of tensors before their tokens.
  lang::Extents batches() const { return c.varlen ? lang::Extents{} : lang::Extents{batch}; }
  // Over all tokens of tensors.
  lang::Expr all_batches() const { return c.varlen ? lang::Expr(lang::Operand(1)) : lang::Expr(batch); }
  // The most of a sequence.
  lang::Expr most_keys() const { return c.varlen ? *longest_k_ : lang::Expr(keys); }
  lang::Expr most_blocks() const { return c.varlen ? ceildiv(*longest_q_, c.q_block) : lang::Expr(q_blocks); }

  // The rows and lengths of a sequence, limited to the promised length so that all grids count the same
  // blocks.
  SequenceRows rows(const lang::Expr& b) const;
  lang::Expr queries_of(const lang::Expr& b) const;
  lang::Expr keys_of(const lang::Expr& b) const;
  lang::Expr blocks_of(const lang::Expr& b) const;
  // Position of query 0 among the keys.
  lang::Expr shift(const lang::Expr& b) const { return keys_of(b) - queries_of(b); }
  // How many blocks of keys there are that a block of queries may meet, after whose last query `end` is.
  lang::Expr blocks_met(const lang::Expr& b, const lang::Expr& q_block, const lang::Expr& end) const;
  // In a block that no other one waits for.
  void assert_promise(const lang::Expr& b) const;

  // The blocks of queries, and the spans of keys, that there are, where lists say whose they are.
  std::optional<PackedTiles> listed_blocks, listed_spans;

  lang::Dim batch{"batch"}, queries{"queries"}, keys{"keys"}, heads{"kv_heads"}, q_blocks{"q_blocks"};

 private:
  lang::Expr length(const lang::Tensor& fences, const lang::Expr& b) const {
    return fences(b + 1) - fences(b);
  }

  const BlockSparseKernel& c;
  std::optional<lang::Tensor> q_begin_, k_begin_;
  std::optional<lang::Expr> longest_q_, longest_k_;
};

}  // namespace tegula::ops

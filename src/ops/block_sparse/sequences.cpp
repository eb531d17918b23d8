#include "ops/block_sparse/sequences.hpp"

namespace tegula::ops {

using namespace lang;

void assert_listed(const Expr& queries, const Expr& most) {
  assert_that(queries <= most,
              "a sequence has more queries than max_seqlen_q, or than the rows of the lists have");
}

void BlockSparseSequences::declare() {
  if (!c.varlen) return;
  Dim fences("fences");
  q_begin_.emplace(input("q_begin", {fences}, i32));
  k_begin_.emplace(input("k_begin", {fences}, i32));
  longest_q_.emplace(scalar("longest_q", i32));
  longest_k_.emplace(scalar("longest_k", i32));
  if (c.owned) listed_blocks.emplace("block_owners", *q_begin_, c.q_block);
}

void BlockSparseSequences::declare_spans(int keys) {
  if (c.owned) listed_spans.emplace("span_owners", *k_begin_, keys);
}

Expr BlockSparseSequences::queries_of(const Expr& b) const {
  return c.varlen ? min(length(*q_begin_, b), *longest_q_) : Expr(queries);
}

Expr BlockSparseSequences::keys_of(const Expr& b) const {
  return c.varlen ? min(length(*k_begin_, b), *longest_k_) : Expr(keys);
}

Expr BlockSparseSequences::blocks_of(const Expr& b) const {
  return c.varlen ? ceildiv(queries_of(b), c.q_block) : Expr(q_blocks);
}

SequenceRows BlockSparseSequences::rows(const Expr& b) const {
  if (!c.varlen) return {b, queries, keys};
  Expr first_query = (*q_begin_)(b), first_key = (*k_begin_)(b);
  return {b, range(first_query, first_query + queries_of(b)), range(first_key, first_key + keys_of(b)), true};
}

Expr BlockSparseSequences::blocks_met(const Expr& b, const Expr& q_block, const Expr& end) const {
  Expr blocks = ceildiv(c.causal ? clamp(end, 0, keys_of(b)) : keys_of(b), c.k_block);
  return c.varlen ? select(q_block < blocks_of(b), blocks, 0) : blocks;
}

void BlockSparseSequences::assert_promise(const Expr& b) const {
  if (!c.varlen) return;
  assert_listed(length(*q_begin_, b), *longest_q_);
  assert_that(length(*k_begin_, b) <= *longest_k_,
              "a sequence has more keys than max_seqlen_k, or than the mask has");
}

}  // namespace tegula::ops

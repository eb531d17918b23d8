// The program of the gradients of block-sparse attention: what its grids share.
#pragma once
#include "ops/block_sparse/backward_kernel.hpp"
#include "ops/block_sparse/query_vectors.hpp"
#include "ops/block_sparse/sequences.hpp"
#include "ops/lists/lists.hpp"
#include "ops/lists/longest_first.hpp"
#include "ops/lists/sorted_lists.hpp"
#include "ops/pieces/key_pass.hpp"
#include "ops/pieces/scores.hpp"

namespace tegula::ops {

// See block_sparse_backward_kernel.
namespace sparse_backward {

using namespace lang;
using lang::Tensor;

struct BackwardProgram {
  const BlockSparseBackwardKernel& c;
  const BlockSparseKernel& f = c.forward;
  std::optional<Dim> group;  // of query heads, where they do not share tiles
  BlockSparseSequences sequences;
  Dim entries{"entries"};
  const Dim &batch = sequences.batch, &heads = sequences.heads;
  std::optional<Tensor> dout, q, k, v, out, lse, dq, dk, dv, choice, lengths, dlse, sum, split_dk, split_dv;
  std::optional<Expr> scale, cap;
  std::optional<LargeScores> large;
  std::optional<QueryVectors> vectors;
  std::optional<InverseLists> inverse;
  std::optional<SortedLists> sorted;
  std::optional<LongestFirst> longest_first;  // of the lists of keys, all heads of all batches in a row

  explicit BackwardProgram(const BlockSparseBackwardKernel& instance)
      : c(instance), sequences(instance.forward) {
    if (f.pack == 1) group.emplace("group");
    const Extents batches = sequences.batches(),
                  of_q = joined(batches, {sequences.queries, heads, members()}),
                  vector = joined(batches, {heads, members(), sequences.queries}),
                  of_k = joined(batches, {sequences.keys, heads}),
                  rows{batch, heads, selectors(), sequences.q_blocks};
    dout.emplace(input("dout", joined(of_q, {f.dim_v}), f.type));
    q.emplace(input("q", joined(of_q, {f.dim}), f.type));
    k.emplace(input("k", joined(of_k, {f.dim}), f.type));
    v.emplace(input("v", joined(of_k, {f.dim_v}), f.type));
    out.emplace(input("out", joined(of_q, {f.dim_v}), f.type));
    lse.emplace(input("lse", vector, f32));
    dq.emplace(output("dq", joined(of_q, {f.dim}), f.type));
    dk.emplace(output("dk", joined(of_k, {f.dim}), f.type));
    dv.emplace(output("dv", joined(of_k, {f.dim_v}), f.type));
    choice.emplace(input("choice", joined(rows, {entries}), f.mask ? boolean : i32));
    scale.emplace(scalar("scale", f32));
    if (f.softcap != ScoreCap::none) cap.emplace(scalar("cap", f32));
    if (f.counts) lengths.emplace(input("counts", rows, i32));
    if (c.dlse) dlse.emplace(input("dlse", vector, f32));
    vectors.emplace(f, sequences, f.pack > 1 ? Expr(Operand(f.pack)) : Expr(*group));
    large.emplace();
    if (c.one_pass) sum.emplace(workspace("sum", joined(vector, {f.dim}), f32, {.zero = true}));
    sequences.declare();
    sequences.declare_spans(c.span());
    if (c.splits == 1) return;
    split_dk.emplace(workspace("piece_dk", joined(joined({c.splits}, of_k), {f.dim}), f32));
    split_dv.emplace(workspace("piece_dv", joined(joined({c.splits}, of_k), {f.dim_v}), f32));
  }

  Operand members() const { return f.pack > 1 ? Operand(f.pack) : Operand(*group); }
  Operand selectors() const { return c.per_query_head ? members() : Operand(1); }
  Expr q_tiles() const { return sequences.most_blocks() * f.splits(); }
  Expr head_blocks() const { return f.pack > 1 ? Expr(heads) : heads * *group; }
  ScoreGradient gradient() const { return {*scale, cap, *large, f.softcap, f.compute}; }
  // The number of lists of keys in the longest sequence.
  Expr lists() const { return ceildiv(sequences.most_keys(), c.span()); }
  // All tokens, whatever sequence they belong to.
  HeadViews all_tokens(const Expr& b, const Expr& kv_head, const Subscript& member) const {
    return {SequenceRows(b, range(0, sequences.queries), range(0, sequences.keys), f.varlen), kv_head,
            member};
  }
  ChoiceRow choice_row(const Expr& b, const Expr& kv_head, const Expr& selector, const Expr& q_block) const {
    Expr length = f.counts ? clamp((*lengths)(b, kv_head, selector, q_block), 0, entries) : Expr(entries);
    return {choice->slice(b, kv_head, selector, q_block), length, f.mask};
  }

  // `whole` where the last rows of the vectors are written with those after them.
  HeadRows rows_of(const HeadViews& of, bool whole = false) const {
    HeadRows rows{of.of_queries(*dout),
                  of.of_queries(*out),
                  of.vector(*lse),
                  whole ? vectors->tiles(vectors->delta, of) : vectors->rows(vectors->delta, of),
                  whole ? vectors->tiles(vectors->base, of) : vectors->rows(vectors->base, of),
                  {},
                  f.dim_v,
                  *large};
    if (dlse) rows.dlse.emplace(of.vector(*dlse));
    return rows;
  }

  void run();
  void delta_grid();
  void large_grid();
  InverseLists inverted_lists() const;
  Expr first_list(const Expr& b, const Expr& key) const;
  Expr queries_of(const Expr& head, const Expr& list) const;
  SortedLists sorted_lists() const;
  void query_grid();
  void key_grid();
  // `number` is that of its block of queries among those of all sequences, where they are listed.
  void query_block(const Expr& x, const Index& h, const Expr& b, const std::optional<Expr>& number);
  // Calls `body` for the tiles of keys that a block of queries chose.
  void walk_choice(const ChoiceRow& chosen, const Expr& blocks,
                   const std::function<void(const BlockTile&)>& body) const;
  void walk_sorted(const SortedLists::List& list, const Expr& b, const ScoreRange& visible,
                   const std::function<void(const BlockTile&, const Expr& beyond)>& body) const;
  void key_block(const Expr& x, const Index& h, const Expr& b);
  InverseLists::List split_of(const InverseLists::List& list, const Expr& split) const;
  void add_pieces(const Index& x, const Index& h, const Index& b);
  Expr is_beyond(const BlockTile& tile, const ScoreRange& visible) const;
  ScoreGradient::Mask key_mask(const BlockTile& tile, const ScoreRange& visible, const Expr& beyond) const;
  MaskOfStep query_mask(const InverseLists::List& list, const Expr& first_key, const Expr& first_block,
                        const Expr& shift) const;
};

}  // namespace sparse_backward
}  // namespace tegula::ops

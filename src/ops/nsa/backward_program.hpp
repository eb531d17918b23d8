// What the parts of nsa_backward_kernel share: its signature, and views of one sequence and head.
#pragma once
#include <optional>

#include "ops/lists/union.hpp"
#include "ops/nsa/backward_kernel.hpp"
#include "ops/pieces/key_pass.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

// The tensors of one result: the selected blocks, or the window.
struct NsaBranch {
  std::optional<lang::Tensor> dout, out, lse, dlse, delta, base;
};

class NsaBackwardProgram {
 public:
  explicit NsaBackwardProgram(const NsaBackwardKernel& instance);
  void run();

 private:
  lang::Operand members() const { return f.pack > 1 ? lang::Operand(f.pack) : lang::Operand(*group); }
  lang::Operand selectors() const { return c.per_query_head ? members() : lang::Operand(1); }
  lang::Expr sequences() const { return f.varlen ? q_begin->extent(0) - 1 : lang::Expr(*batch); }
  ScoreGradient gradient() const { return {*scale, std::nullopt, *large}; }
  // No longer than promised, so that all grids count the same tokens.
  SequenceRows rows_of(const lang::Expr& b) const {
    if (!f.varlen) return {b, queries, keys};
    SequenceRows rows(b, *q_begin, *k_begin);
    lang::Expr q_end = min(rows.queries.end, lang::Expr(rows.queries.begin) + *longest_q),
               k_end = min(rows.keys.end, lang::Expr(rows.keys.begin) + *longest_k);
    return SequenceRows(b, lang::range(rows.queries.begin, q_end), lang::range(rows.keys.begin, k_end), true);
  }
  // Call this in a block that no other block waits for or reads from.
  void assert_promise(const lang::Expr& b) const {
    if (!f.varlen) return;
    assert_queries((*q_begin)(b + 1) - (*q_begin)(b), *longest_q);
    assert_keys((*k_begin)(b + 1) - (*k_begin)(b), *longest_k);
  }
  Selection selection_of(const SequenceRows& rows, const lang::Expr& kv_head,
                         const lang::Expr& selector) const;

  void declare_window(const lang::Extents& of_out, const lang::Extents& vector);
  void delta_grid();
  InverseLists inverted_lists() const;
  void query_block(const lang::Index& x, const lang::Index& h, const lang::Index& b);
  // A tile of queries, of one head or of those of a group.
  struct QueryRows {
    HeadViews of;
    QueryGradient sums;
    QueryGradient::Branch branch;

    QueryRows(const NsaBackwardProgram& p, const HeadViews& views, const lang::Expr& first);
  };
  void meet_blocks(QueryRows& rows, const TokenTile& tokens, UnionList& chosen,
                   std::optional<lang::Shared>& scales) const;
  ScoreGradient::Mask key_mask(const BlockTile& tile, const TokenTile& tokens, UnionList& chosen) const;
  void add_window(QueryGradient& sums, const HeadViews& of, const TokenTile& tokens) const;
  void write_dscale(const TokenTile& tokens, const Selection& selection, const lang::Tensor& to,
                    UnionList& chosen, lang::Shared& sums) const;

  void key_block(const lang::Index& x, const lang::Index& h, const lang::Index& b);
  MaskOfStep query_mask(const Selection& selection, const lang::Expr& first_key, const lang::Expr& number,
                        const lang::Expr& shift) const;
  void add_window(KeyGradient& sums, const HeadViews& of, const lang::Expr& first, const lang::Expr& end,
                  const lang::Expr& shift) const;

  const NsaBackwardKernel& c;
  const NsaKernel& f;
  std::optional<lang::Dim> batch, group;  // group: of query heads, where they do not share tiles
  lang::Dim queries{"tokens"}, keys{"keys"}, heads{"kv_heads"}, entries{"entries"};
  std::optional<lang::Tensor> q, k, v, dq, dk, dv, choice, lengths, dscale, q_begin, k_begin;
  NsaBranch own, beside;
  std::optional<LargeScores> large;  // of both
  std::optional<lang::Expr> scale, left, longest_q, longest_k;
  std::optional<InverseLists> inverse;
};

}  // namespace tegula::ops

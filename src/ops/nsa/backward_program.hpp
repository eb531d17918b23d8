// What the parts of nsa_backward_kernel share: its signature, and views of one sequence and head.
#pragma once
#include <optional>

#include "ops/attention/scores.hpp"
#include "ops/attention/views.hpp"
#include "ops/block_sparse/key_pass.hpp"
#include "ops/nsa/backward_kernel.hpp"
#include "ops/nsa/union.hpp"

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
  ScoreGradient gradient() const { return {*scale, std::nullopt}; }
  SequenceRows rows_of(const lang::Expr& b) const {
    return f.varlen ? SequenceRows(b, *q_begin, *k_begin) : SequenceRows(b, queries, keys);
  }
  Selection selection_of(const SequenceRows& rows, const lang::Expr& kv_head,
                         const lang::Expr& selector) const;

  void declare_window(const lang::Extents& of_out, const lang::Extents& vector);
  void delta_grid();
  InverseLists turned_lists() const;
  void query_block(const lang::Index& x, const lang::Index& h, const lang::Index& b);
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
  std::optional<lang::Expr> scale, left, longest_q, longest_k;
  std::optional<InverseLists> inverse;
};

}  // namespace tegula::ops

// The tile program of nsa_kernel: its signature, and the two ways to its result.
#pragma once
#include <optional>

#include "ops/lists/pair_lists.hpp"
#include "ops/lists/union_lists.hpp"
#include "ops/lists/walk.hpp"
#include "ops/nsa/kernel.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

class NsaProgram {
 public:
  explicit NsaProgram(const NsaKernel& instance);
  void run();

 private:
  lang::Expr sequences() const { return c.varlen ? q_begin->extent(0) - 1 : lang::Expr(*batch); }
  lang::Expr tiles() const { return ceildiv(c.varlen ? *longest : lang::Expr(queries), c.queries); }
  lang::Expr head_blocks() const { return c.pack > 1 ? lang::Expr(heads) : heads * *group; }
  HeadViews views_of(const lang::Index& h, const lang::Index& b) const;
  Selection selection_of(const HeadViews& views) const;

  // A block of the CPU joins the lists of its tile itself.
  void block(const lang::Index& x, const lang::Index& h, const lang::Index& b) const;
  void mask(lang::Fragment& scores, const BlockTile& keys_of, const TokenTile& tokens,
            UnionList& chosen) const;

  // The sums of a tile, divided by those of the weights, to out.
  void store(lang::Fragment& sum, const HeadViews& views, const lang::Expr& first) const;
  void add_branches(lang::Fragment& sum, const HeadViews& views, const lang::Expr& first) const;

  // On a GPU the lists are joined before.
  void run_with_lists();
  lang::Expr list_of(const SequenceRows& rows, const lang::Index& x) const;
  lang::Expr warps_together(const UnionLists::List& list) const;
  void attend(const UnionLists::List& list, const HeadViews& views, const TokenTile& tokens) const;

  // The pairs of what few tokens of a tile selected, sorted by blocks in each part of the tokens: for
  // nsa_inverted_kernel.
  void declare_pairs();
  void pair_grids() const;

  const NsaKernel& c;
  std::optional<lang::Dim> batch, group;
  lang::Dim queries{"tokens"}, keys{"keys"}, heads{"kv_heads"}, entries{"entries"};
  std::optional<lang::Tensor> q, k, v, out, lse, choice, lengths, q_begin, k_begin, compressed, selected,
      window, gates;
  std::optional<lang::Expr> scale, longest, part_count, part_tokens;
  std::optional<UnionLists> lists;
  NsaKernel of_left_out;  // whose rows are what is left of those of `c`
  std::optional<PairLists> pairs;
};

}  // namespace tegula::ops

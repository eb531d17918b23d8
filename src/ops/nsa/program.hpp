// The tile program of nsa_kernel: its signature, and the two ways to its result.
#pragma once
#include <optional>

#include "ops/attention/views.hpp"
#include "ops/block_sparse/walk.hpp"
#include "ops/nsa/pair_lists.hpp"
#include "ops/nsa/union_lists.hpp"

namespace tegula::ops {

class NsaProgram {
 public:
  explicit NsaProgram(const NsaKernel& instance);
  void run();

 private:
  lang::Expr sequences() const { return c.varlen ? q_begin->extent(0) - 1 : lang::Expr(*batch); }
  lang::Expr tiles() const { return ceildiv(c.varlen ? *longest : lang::Expr(queries), c.queries); }
  lang::Expr parts() const { return c.pack > 1 ? lang::Expr(heads) : heads * *group; }
  HeadViews views_of(const lang::Index& h, const lang::Index& b) const;
  Selection selection_of(const HeadViews& views) const;

  // A block of the CPU joins the lists of its tile itself.
  void block(const lang::Index& x, const lang::Index& h, const lang::Index& b) const;
  void mask(lang::Fragment& scores, const BlockTile& keys_of, const TokenTile& tokens,
            UnionList& chosen) const;

  // On a GPU the lists are joined before.
  void run_with_lists();
  lang::Expr list_of(const SequenceRows& rows, const lang::Index& x) const;
  void attend(const UnionLists::List& list, const HeadViews& views, const TokenTile& tokens,
              const lang::Expr& head, const lang::Expr& tile) const;

  // What few tokens of a tile selected, block by block of keys; see rest.cpp.
  void declare_slots();
  void run_rest();
  lang::Expr chunks() const { return ceildiv(queries, chunk_tokens); }
  lang::Expr shift() const { return keys - queries - *behind; }
  PairLists::Part part_of(const lang::Expr& head, const lang::Expr& b) const {
    return {head, b, b * chunks(), b * queries, ceildiv(keys, c.block)};
  }
  // Slots of pairs, then one for each token's result of its tile.
  lang::Expr own_slot(const lang::Expr& b, const lang::Expr& token) const {
    return *batch * queries * pairs->width() + b * queries + token;
  }
  // Of `count` slots from `first` on, those that the rows of a tile stand for.
  void store_slots(const lang::Fragment& tile, const lang::Fragment& tile_lse, const lang::Expr& head,
                   const lang::Expr& first, const lang::Expr& count, const lang::Expr& part) const;
  void pair_grids() const;
  void key_block(const lang::Index& x, const lang::Index& h, const lang::Index& b) const;
  void merge_block(const lang::Index& x, const lang::Index& h, const lang::Index& b) const;

  const NsaKernel& c;
  std::optional<lang::Dim> batch, group;
  lang::Dim queries{"tokens"}, keys{"keys"}, heads{"kv_heads"}, entries{"entries"};
  std::optional<lang::Tensor> q, k, v, out, lse, choice, lengths, q_begin, k_begin;
  std::optional<lang::Expr> scale, longest, behind;
  std::optional<UnionLists> lists;
  NsaKernel of_rest;  // whose rows are what is left of those of `c`
  std::optional<PairLists> pairs;
  std::optional<lang::Tensor> slots, slot_lse;
};

}  // namespace tegula::ops

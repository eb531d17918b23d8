// What tiles of neighbouring tokens selected, found by a grid of its own.
//
// For every tile each block once, ascending, and a bit for every token that selected it. The blocks that
// attend then only read numbers, so that the loads of keys and values can run ahead. Memory: two numbers for
// every entry of the lists.
#pragma once
#include <optional>

#include "ops/lists/union.hpp"

namespace tegula::ops {

class UnionLists {
 public:
  static constexpr int word_bits = 32;  // tokens of a word of bits

  // Declares workspaces for so many tiles and tokens of each head; with c.divides() and so many segments of
  // tokens, most_of_part [segments] and most_left_out [heads, warp groups of tiles] as outputs.
  UnionLists(const SelectedBlocks& c, const lang::Expr& heads, const lang::Expr& tiles,
             const lang::Expr& tokens, const std::optional<lang::Expr>& segments = {});

  struct List {
    lang::Tensor blocks;  // [entries]
    lang::Tensor chosen;  // [entries, words]: bit t % 32 of word t / 32 is that of token t
    lang::Expr count;
    lang::Expr whole;  // those before which every token sees to their end; they stand in front
  };
  List list(const lang::Expr& head, const lang::Expr& tile) const;
  // Before tiles are looked at, with c.divides().
  void clear_segments() const;
  // What a block of the grid does; the rows of the tile's sequence begin at `first_row`. With `repeats`, a
  // block that a token names n times stands in the list at least n times, and in n of them the token has its
  // bit. With c.divides(), of which segment the tile is.
  void find(const lang::Expr& head, const lang::Expr& tile, const lang::Expr& first_row,
            const TokenTile& tokens, const Selection& selection, const lang::Expr& segment) const;

  // With c.divides(), the blocks that stand in no list: [tokens, entries] of a head, each once, -1 after the
  // last.
  lang::Tensor left_out(const lang::Expr& head) const { return left_out_->slice(head); }
  // Whether tiles of the segment have left something out.
  lang::Expr has_left_out(const lang::Expr& segment) const { return (*most_of_segment_)(segment) > 0; }

 private:
  lang::Expr tokens_of(lang::Shared& marks, const lang::Expr& run, const lang::Expr& i, int group) const;
  void list_marked(lang::Shared& marks, const lang::Expr& begin, const List& to, lang::Var& count,
                   lang::Shared& cut) const;
  void find_gains(lang::Shared& marks, lang::Shared& gains) const;
  void leave_out(lang::Shared& marks, const lang::Expr& begin, int group, lang::Shared& named,
                 lang::Shared& left_out) const;
  void leave_out_few(lang::Shared& marks, const lang::Expr& begin, lang::Shared& named,
                     lang::Shared& left_out) const;
  lang::Expr write_left_out(const lang::Expr& head, const lang::Expr& tile, const lang::Expr& row,
                            const lang::Expr& tokens, lang::Shared& left_out) const;

  SelectedBlocks c;
  int width_, words_;
  lang::Tensor blocks_, chosen_, counts_, whole_;
  std::optional<lang::Tensor> left_out_, most_left_out_, most_of_segment_;
};

}  // namespace tegula::ops

// What tiles of neighbouring tokens selected, found by a grid of its own.
//
// For every tile each block once, ascending, and a bit for every token that selected it. The blocks that
// attend then only read numbers, so that the loads of keys and values can run ahead. Memory: two numbers for
// every entry of the lists.
#pragma once
#include "ops/nsa/union.hpp"

namespace tegula::ops {

class UnionLists {
 public:
  // Declares workspaces for so many tiles of each head.
  UnionLists(const NsaKernel& c, const lang::Expr& heads, const lang::Expr& tiles);

  struct List {
    lang::Tensor blocks;  // [entries]
    lang::Tensor chosen;  // [entries, words]: bit t % 32 of word t / 32 is that of token t
    lang::Expr count;
  };
  List list(const lang::Expr& head, const lang::Expr& tile) const;
  // What a block of the grid does. With `repeats`, a block that a token names n times stands in the list at
  // least n times, and in n of them the token has its bit.
  void find(const lang::Expr& head, const lang::Expr& tile, const TokenTile& tokens,
            const Selection& selection) const;

 private:
  void list_marked(lang::Shared& marks, const lang::Expr& begin, const List& to, lang::Var& count) const;

  const NsaKernel& c;
  int width_, words_;
  lang::Tensor blocks_, chosen_, counts_;
};

}  // namespace tegula::ops

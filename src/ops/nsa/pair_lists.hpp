// Pairs of a token and a block that it selected, sorted by blocks within chunks of tokens, in a grid of its
// own.
//
// One block of the grid sorts a chunk: it counts the pairs of every block of keys, finds where their lists
// begin, and writes tokens there in ascending order, whatever the order of threads. Memory: two numbers for
// every entry of the lists, and one for every block of keys and chunk.
#pragma once
#include "ops/nsa/union.hpp"

namespace tegula::ops {

inline constexpr int chunk_tokens = 1024;

class PairLists {
 public:
  // All tokens, chunks and blocks of a head, those of several sequences one behind the other.
  struct Extents {
    lang::Expr heads, tokens, chunks, blocks;
  };
  // Declares workspaces.
  PairLists(const NsaKernel& c, const Extents& extents);

  // Of one sequence, the chunk at tokens.first.
  struct Chunk {
    lang::Expr head, number, first_row;  // the chunk's number and first token among all of the head
    lang::Expr blocks;                   // of the sequence
  };
  // What a block of the grid does.
  void find(const Chunk& chunk, const TokenTile& tokens, const Selection& selection) const;

  struct List {
    lang::Tensor tokens;  // of all pairs of the head: numbers within the sequence
    lang::Expr begin, count;
  };
  List list(const Chunk& chunk, const lang::Expr& block) const;
  // Where the pair of an entry stands among all of the head; -1 where there is none.
  lang::Expr place(const lang::Expr& head, const lang::Expr& row, const lang::Expr& entry) const {
    return places_(head, row, entry);
  }
  int width() const { return width_; }

 private:
  void name_blocks(const TokenTile& tokens, const Selection& selection, const lang::Expr& first,
                   lang::Shared& named) const;
  void count(const Chunk& chunk, const lang::Expr& begin, lang::Shared& counts, lang::Var& total) const;
  void write(const Chunk& chunk, const lang::Expr& first, const lang::Expr& begin, lang::Shared& named,
             lang::Shared& cursors) const;

  const NsaKernel& c;
  int width_;
  lang::Tensor begins_, tokens_, places_;
};

}  // namespace tegula::ops

// Pairs of a token and a block that it selected, sorted by blocks within chunks of tokens, in a grid of its
// own.
//
// One block of the grid sorts a chunk: it counts the pairs of every block of keys, finds where their lists
// begin, and writes tokens there in ascending order, whatever the order of threads. Memory: two numbers for
// every entry of the lists, and one for every block of keys and chunk.
//
// Long lists, such as that of a block that every token selects, have slots besides: what computes with lists
// can divide them by chunks.
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
  // Declares workspaces. Lists of more than `longest` pairs are long.
  PairLists(const NsaKernel& c, const Extents& extents, int longest);

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

  // Slots of the long lists of a chunk.
  int long_slots() const { return chunk_tokens * width_ / (longest_ + 1); }
  lang::Expr is_long(const List& list) const { return list.count > longest_; }
  // The block whose list has the slot, or -1; and the slot of a block whose list is long.
  lang::Expr long_block(const Chunk& chunk, const lang::Expr& slot) const {
    return long_blocks_(chunk.head, chunk.number, slot);
  }
  lang::Expr long_slot(const Chunk& chunk, const lang::Expr& block) const {
    return slots_(chunk.head, chunk.number, block);
  }

 private:
  void name_blocks(const TokenTile& tokens, const Selection& selection, const lang::Expr& first,
                   lang::Shared& named) const;
  void find_begins(const Chunk& chunk, const lang::Expr& begin, lang::Shared& counts, lang::Var& total) const;
  void find_long(const Chunk& chunk, const lang::Expr& begin, const lang::Shared& counts,
                 lang::Var& total) const;
  void write(const Chunk& chunk, const lang::Expr& first, const lang::Expr& begin, lang::Shared& named,
             lang::Shared& cursors) const;

  const NsaKernel& c;
  int width_, longest_;
  lang::Tensor begins_, tokens_, places_, long_blocks_, slots_;
};

}  // namespace tegula::ops

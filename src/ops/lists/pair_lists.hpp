// Pairs of a token and a block that it selected, sorted by blocks.
//
// Two grids, a block of each for a chunk of tokens: the first counts the chunk's pairs of every block of
// keys; the second adds these numbers up to where the lists begin, and where the chunk's pairs stand in them,
// and writes the tokens there. Tokens ascend in every list, whatever the order of threads. Memory: two
// numbers for every entry of the lists, and one for every block of keys and chunk, so chunks of long calls
// are longer.
//
// Long lists, such as that of a block that every token selects, are cut into pieces, which have numbers: what
// computes with lists can do so piece by piece.
#pragma once
#include <algorithm>
#include <functional>
#include <optional>

#include "ops/lists/union.hpp"

namespace tegula::ops {

class PairLists {
 public:
  // All tokens, chunks and sequences of a head, and the most blocks of a sequence.
  struct Extents {
    lang::Expr heads, tokens, chunks, sequences, blocks;
  };
  // What the lists are to the kernel: its own, or made by one for others.
  enum class Role : std::uint8_t { workspaces, outputs, inputs };
  struct Options {
    int longest = 1024;  // lists of more pairs are cut
    // Rows are what is left of others: none names a block twice, and many are empty. Nobody asks for the
    // places of an empty one.
    bool left_out = false;
    Role role = Role::workspaces;
  };
  // Declares tensors. As outputs and inputs they are, of numbers: begins [heads, sequences, blocks + 1],
  // tokens [heads, tokens · width], places [heads, tokens, width], blocks of pieces [heads, all_pieces],
  // first pieces [heads, sequences, blocks].
  PairLists(const SelectedBlocks& c, const Extents& extents, const Options& options);

  // What lists belong to: one sequence of one head, and where its chunks and tokens begin among all of the
  // head.
  struct Owner {
    lang::Expr head, sequence, first_chunk, first_row, blocks;
  };
  // What the blocks of the grids do, for the chunk at tokens.first.
  void count(const Owner& owner, const TokenTile& tokens, const Selection& selection) const;
  void write(const Owner& owner, const TokenTile& tokens, const Selection& selection) const;

  struct List {
    lang::Tensor tokens;  // of all pairs of the head: numbers within the sequence
    lang::Expr begin, count;
    std::optional<lang::Tensor> times;  // with repeats, how often the token names the block
  };
  List list(const Owner& owner, const lang::Expr& block) const;
  // Where the pair of an entry stands among all of the head; -1 where there is none.
  lang::Expr place(const lang::Expr& head, const lang::Expr& row, const lang::Expr& entry) const {
    return places_(head, row, entry);
  }
  int width() const { return width_; }

  lang::Expr is_cut(const List& list) const { return list.count > longest_; }
  // The most pieces of a sequence.
  lang::Expr pieces(const lang::Expr& tokens, const lang::Expr& blocks) const {
    lang::Expr whole = tokens * width_ / longest_;
    return whole + min(blocks, whole) + 1;
  }
  // Room for those of all sequences of a head, which stand one after the other.
  template <class Number>
  static Number all_pieces(const Number& tokens, const Number& sequences, int width, int longest) {
    return tokens * width / longest * 2 + sequences;
  }
  lang::Expr begin_of_pieces(const Owner& owner) const {
    return all_pieces(owner.first_row, owner.sequence, width_, longest_);
  }
  // The block of a piece, or -1; the first piece of a block, if its list is cut.
  lang::Expr block_of(const Owner& owner, const lang::Expr& piece) const {
    return piece_blocks_(owner.head, begin_of_pieces(owner) + piece);
  }
  lang::Expr first_piece(const Owner& owner, const lang::Expr& block) const {
    return first_pieces_(owner.head, owner.sequence, block);
  }
  List piece(const List& list, const lang::Expr& number) const {
    lang::Expr skipped = number * longest_;
    return {list.tokens, list.begin + skipped, min(list.count - skipped, longest_), list.times};
  }
  lang::Expr pieces_of(const List& list) const { return ceildiv(list.count, longest_); }

 private:
  void leave_empty(const Owner& owner, const TokenTile& tokens) const;
  void each_chunk(const TokenTile& tokens,
                  const std::function<void(const lang::Expr& n, const lang::Expr& exists)>& body) const;
  void each_pass(const Owner& owner, const std::function<void(const lang::Expr& begin)>& body) const;
  // `listed` are all entries, of which `named` keeps the first that names a block.
  using OfWord = std::function<void(const lang::Expr& first, lang::Shared& named, lang::Shared& listed)>;
  void each_word(const TokenTile& tokens, const Selection& selection, const OfWord& body) const;
  void add_up_chunks(const Owner& owner, const TokenTile& tokens, const lang::Expr& begin,
                     lang::Shared& all_pairs, lang::Shared& cursors) const;
  void find_begins(const Owner& owner, const lang::Expr& begin, const lang::Expr& tells,
                   const lang::Shared& all_pairs, lang::Shared& cursors, lang::Var& total) const;
  void cut(const Owner& owner, const lang::Expr& begin, const lang::Shared& all_pairs,
           lang::Var& total) const;
  void write_word(const Owner& owner, const lang::Expr& first, const lang::Expr& begin, lang::Shared& named,
                  lang::Shared& listed, lang::Shared& cursors) const;

  SelectedBlocks c;
  int width_, longest_;
  Options options_;
  std::optional<lang::Tensor> counts_, chunk_pairs_, times_;  // of who makes the lists
  lang::Tensor begins_, tokens_, places_, piece_blocks_, first_pieces_;
};

}  // namespace tegula::ops

// Lists of blocks transposed round on the device: which blocks of queries chose a block of keys.
//
// Three grids: each chunk of rows counts what it adds to every list; each head finds where the lists begin,
// and the chunks within them; each chunk writes its rows there. Rows ascend in every list, whatever the order
// in which blocks run, and a row stands once however often it names a block. Memory: the lists have room for
// every entry, and the table of counts for a number a chunk and list, so chunks of long calls are longer.
#pragma once
#include <functional>
#include <optional>

#include "tegula/lang.hpp"

namespace tegula::ops {

inline constexpr int inverse_rows = 32;     // of a chunk, at least: that are marked at a time
inline constexpr int counts_of_token = 32;  // of a query or key, at most: chunks are so long

// How the programs number things. Sequences of different lengths are one after the other.
struct InverseExtents {
  int chunk;                               // rows of one: a multiple of inverse_rows
  lang::Expr heads, sequences;             // lists of their own: of key heads, or of all query heads
  lang::Expr longest_rows, longest_lists;  // the most of a sequence
  lang::Expr chunks, lists, entries;       // of all sequences together
};

// What lists belong to: one sequence of one head.
struct InverseOwner {
  lang::Expr rows, lists;                           // of the sequence
  lang::Expr chunk_begin, list_begin, entry_begin;  // where its own begin
  // Calls `visit` with the number of every block of keys that a row chose, with whatever else stands in its
  // list, and with blocks any number of times.
  using Visit = std::function<void(const lang::Expr& block)>;
  std::function<void(const lang::Expr& row, const Visit& visit)> each;
  lang::Expr blocks;  // one after the largest number that exists
};

class InverseLists {
 public:
  // Declares workspaces; owner_of gives that of a head and a sequence. `fold` blocks of keys share a list;
  // each of its rows has a bit for each.
  using OwnerOf = std::function<InverseOwner(const lang::Expr& head, const lang::Expr& sequence)>;
  InverseLists(int fold, const InverseExtents& extents, OwnerOf owner_of);

  // The three grids, in this order.
  void record_count() const;
  void record_begins() const;
  void record_rows() const;

  struct List {
    lang::Tensor rows;                 // of all lists of the head
    std::optional<lang::Tensor> bits;  // [.., words]: which of the blocks that share the list the row chose
    lang::Expr begin, count;

    lang::Expr row(const lang::Expr& n) const { return rows(begin + n); }
  };
  // Blocks whose bits share a word.
  static constexpr int word_bits = 32;
  static int words_of(int fold) { return (fold + word_bits - 1) / word_bits; }
  List list(const lang::Expr& head, const lang::Expr& sequence, const lang::Expr& number) const;

 private:
  using OfChunkOfRows = std::function<void(const lang::Expr& chunk, const lang::Expr& begin,
                                           const lang::Expr& head, const InverseOwner& owner)>;
  void over_chunks(const OfChunkOfRows& body) const;
  void mark(const InverseOwner& owner, const lang::Expr& step, const lang::Expr& begin,
            lang::Shared& marks) const;
  lang::Expr is_marked(lang::Shared& marks, const lang::Expr& row, const lang::Expr& column) const;
  // `step` are inverse_rows rows, numbered from the sequence's first.
  using OfMarks = std::function<void(const lang::Expr& step, lang::Shared& marks)>;
  void each_step(const InverseOwner& owner, const lang::Expr& chunk, const lang::Expr& begin,
                 const OfMarks& body) const;
  void count(const lang::Expr& chunk, const lang::Expr& begin, const lang::Expr& head,
             const InverseOwner& owner) const;
  using OfChunk =
      std::function<void(const lang::Expr& n, const lang::Expr& exists, const lang::Expr& number)>;
  void each_chunk(const lang::Expr& head, const InverseOwner& owner, const lang::Expr& list,
                  const OfChunk& body) const;
  void find_begins(const lang::Expr& head, const InverseOwner& owner) const;
  void write(const lang::Expr& chunk, const lang::Expr& begin, const lang::Expr& head,
             const InverseOwner& owner) const;

  int fold_, words_;
  InverseExtents extents_;
  OwnerOf owner_of_;
  lang::Tensor counts_, begins_, lengths_, rows_;
  std::optional<lang::Tensor> bits_;
};

}  // namespace tegula::ops

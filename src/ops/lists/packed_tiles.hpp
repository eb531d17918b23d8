// Tiles of packed sequences, of which a list says whose they are: a grid that had a block for each tile of
// the longest sequence that there might be, for every sequence, would have blocks without work.
#pragma once
#include <functional>

#include "ops/schema/launch.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

class PackedTiles {
 public:
  // `name` is that of the list among a program's parameters; see list_tiles.
  PackedTiles(const char* name, const lang::Tensor& fences, int rows);

  lang::Expr count() const { return owners_.extent(0); }
  // The sequence of the x-th tile, and its number there. The last tiles of a sequence may be empty.
  struct Place {
    lang::Expr sequence, tile;
  };
  Place place(const lang::Expr& x) const;

 private:
  lang::Tensor owners_, fences_;
  int rows_;
};

// Tiles whose keys are divided among blocks by their number: where tiles do not fill a GPU, one long sequence
// among short ones is shared by as many blocks as all keys together allow.
class KeyShares {
 public:
  // Sequences, their tiles of queries and their steps of keys.
  struct Lengths {
    lang::Expr sequences, most_tiles;                           // of all together
    std::function<lang::Expr(const lang::Expr&)> tiles, steps;  // of a sequence
  };
  // `columns` blocks work on a tile, each for heads of its own.
  KeyShares(Lengths lengths, const lang::Expr& columns);
  // Packed sequences with tiles of `rows` queries of `queries`, and steps of `keys` keys.
  static Lengths of_packed(const lang::Tensor& q_begin, const lang::Tensor& k_begin,
                           const lang::Expr& queries, int rows, int keys);

  // The most shares that there may be, whatever the lengths are.
  lang::Expr count() const { return owners_.extent(0); }
  void record_grid() const;
  // Without a share, `exists` is false.
  struct Share {
    lang::Expr exists, sequence, tile, part, parts;
  };
  Share share(const lang::Expr& x) const;

 private:
  void write_shares(const lang::Expr& x, const lang::Expr& i) const;

  Lengths lengths_;
  lang::Expr columns_;
  lang::Tensor owners_, first_, parts_;
};
// Whether a sequence may be far longer than the mean; even ones are better split alike (by a fifth).
bool are_uneven(std::int64_t tokens, std::int64_t sequences, std::int64_t longest);
// Whether tiles are so few that their keys are better divided by length.
bool should_share_keys(std::int64_t queries, std::int64_t keys, std::int64_t sequences, std::int64_t columns,
                       int rows);

// Whether a grid of the tiles of the longest sequence for every one of `sequences` would have many more
// blocks than `tokens` need.
bool should_list_tiles(std::int64_t tokens, std::int64_t sequences, std::int64_t longest, int rows);
// The list of the tiles of sequences between fences, for the time of a call.
tegula::Tensor list_tiles(Launch& launch, const TensorRef& fences, std::int64_t tokens, int rows);

}  // namespace tegula::ops

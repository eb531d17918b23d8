// Tiles of packed sequences, of which a list says whose they are: a grid that had a block for each tile of
// the longest sequence that there might be, for every sequence, would have blocks without work.
#pragma once
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
  // Tiles of `rows` queries, steps of `keys` keys; `columns` blocks work on a tile, each for heads of its
  // own.
  KeyShares(const lang::Tensor& q_begin, const lang::Tensor& k_begin, const lang::Expr& queries,
            const lang::Expr& columns, int rows, int keys);

  // The most shares that there may be; whatever the lengths, the keys are those of the call.
  lang::Expr count() const { return owners_.extent(0); }
  void record_grid() const;
  // Without a share, `exists` is false.
  struct Share {
    lang::Expr exists, sequence, tile, part, parts;
  };
  Share share(const lang::Expr& x) const;

 private:
  lang::Expr sequences() const { return q_begin_.extent(0) - 1; }
  lang::Expr tiles_of(const lang::Expr& n) const;
  lang::Expr steps_of(const lang::Expr& n) const;
  void write_shares(const lang::Expr& x, const lang::Expr& i) const;

  lang::Tensor q_begin_, k_begin_, owners_, first_, parts_;
  lang::Expr columns_;
  int rows_, keys_;
};
// Whether tiles are so few that their keys are better divided by length.
bool should_share_keys(std::int64_t queries, std::int64_t keys, std::int64_t sequences, std::int64_t columns,
                       int rows);

// Whether a grid of the tiles of the longest sequence for every one of `sequences` would have many more
// blocks than `tokens` need.
bool should_list_tiles(std::int64_t tokens, std::int64_t sequences, std::int64_t longest, int rows);
// The list of the tiles of sequences between fences, for the time of a call.
tegula::Tensor list_tiles(Launch& launch, const TensorRef& fences, std::int64_t tokens, int rows);

}  // namespace tegula::ops

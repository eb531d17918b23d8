// Walking the rows of a tensor (keys, or queries) that a list of blocks names, tile by tile.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "tegula/lang.hpp"

namespace tegula::ops {

inline constexpr int no_row = 0x7fffffff;  // larger than any row: outside the tensor, and after every limit

// A tile is one of the equal tiles of a block, or several whole blocks. Rows of it after them belong to none.
struct TileOfBlocks {
  int block = 64, extent = 64;
  // Few blocks are copied one by one, as a copy engine does it; else row by row.
  bool by_blocks = false;

  int blocks() const { return extent >= 2 * block ? extent / block : 1; }
  bool gathers() const { return blocks() > 1; }
  // A box of rows begins at a multiple of eight of them in a tile.
  bool joins() const {
    return by_blocks && gathers() && block % 8 == 0 && extent % block == 0 && blocks() <= 4;
  }
  int tiles_of_block() const { return (block + extent - 1) / extent; }
};
TileOfBlocks tile_of_blocks(int block, int wanted);

// One step of a walk. Rows that belong to no block of the list have the number no_row if blocks are gathered;
// otherwise they follow `end`.
struct BlockTile {
  lang::Expr first, end;                 // rows of the tensor where blocks are not gathered
  std::optional<lang::Expr> entry;       // position in the list where blocks are not gathered
  const lang::Shared* row_of = nullptr;  // of each row of a tile of blocks gathered row by row
  std::vector<lang::Expr> begins;        // of blocks that are copied one by one
  lang::Expr step;
  TileOfBlocks shape;

  lang::Expr row(const lang::Expr& r) const;
  // Whether row r, which is `row`, belongs to a block of the list.
  lang::Expr counts(const lang::Expr& row) const;
  // Position in the list of the block of row r.
  lang::Expr place(const lang::Expr& r) const;
  // Whether there may be rows that do not count.
  lang::Expr ragged() const;
  // `from` is [rows, features], or [rows, pack, features] if the tile has `pack` rows for each.
  void load(const lang::Tensor& from, lang::Shared& tile, int pack = 1) const;
  // `from` is [rows · pack], or [pack, rows].
  void load_vector(const lang::Tensor& from, lang::Shared& tile, int pack) const;
};

// `list` gives the number of the n-th block, for n < count.
void walk_blocks(const TileOfBlocks& shape, const std::function<lang::Expr(const lang::Expr& n)>& list,
                 const lang::Expr& count, const std::function<void(const BlockTile&)>& body);

}  // namespace tegula::ops

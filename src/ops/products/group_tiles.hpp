// Finds the group of each tile of rows, for groups of any sizes that are known only on the device.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::ops {

// Group g has the rows offsets[g] … offsets[g + 1]. A grid of its own makes a table of all tiles, of which
// there are ceildiv(rows, rows of a tile) + groups at most.
class GroupTiles {
 public:
  // Asserts that the offsets begin with 0, do not fall, and end with the number of rows or before, and that
  // no group has more than `most` rows, if that is not 0.
  GroupTiles(const lang::Tensor& offsets, const lang::Expr& rows, const lang::Expr& most, int rows_of_tile);

  const lang::Expr& count() const { return count_; }
  // For a tile: its group, or −1 if there is no such tile; its first row within the group; and the rows of
  // the group.
  lang::Expr group(const lang::Expr& tile) const { return table_(tile, 0); }
  lang::Expr row(const lang::Expr& tile) const { return table_(tile, 1); }
  lang::Range rows(const lang::Expr& group) const {
    return lang::range(offsets_(group), offsets_(group + 1));
  }

 private:
  lang::Tensor offsets_;
  lang::Expr count_;
  lang::Tensor table_;
};

}  // namespace tegula::ops

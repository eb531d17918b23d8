// Which accesses of a block to a tensor, or a tile, cannot be to the same element: they are in different
// rows, or in parts of the tile that are apart.
#pragma once
#include "ir/affine.hpp"
#include "ir/view.hpp"

namespace tegula::passes {

// The coordinate along a dimension: base + offset, with a base that only the call and the indices of the
// block decide. Two blocks that touch the same element race, whatever this says of one of them.
struct PlaceInBlock {
  int dim = 0;
  ir::Affine base = {};
  std::int64_t offset = 0;
};
using PlacesInBlock = std::vector<PlaceInBlock>;  // along the dimensions in which it is known

// `index` is null when all elements of the view are meant; `of_grid` are the indices of the block.
PlacesInBlock places_in_block(const ir::View& view, const std::vector<ir::Expr>* index,
                              const std::vector<ir::VariablePtr>& of_grid);

bool are_apart(const PlacesInBlock& a, const PlacesInBlock& b);
bool are_same(const PlacesInBlock& a, const PlacesInBlock& b);

// The elements that a view of a tile can show: an interval along each dimension, or nothing known.
struct PartOfTile {
  struct Interval {
    std::int64_t begin, end;
  };
  const ir::Buffer* tile = nullptr;
  std::vector<Interval> along = {};

  bool operator==(const PartOfTile& other) const;
};
PartOfTile part_of_tile(const ir::View& view);
bool are_apart(const PartOfTile& a, const PartOfTile& b);

}  // namespace tegula::passes

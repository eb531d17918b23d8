// The tiles of a product whose rows are divided into groups, and the windows of row tensors that belong to a
// group.
#pragma once
#include <functional>
#include <optional>

#include "ops/products/group_tiles.hpp"
#include "ops/schema/instance.hpp"

namespace tegula::ops {

// How rows are laid out: one after the other, divided by `offsets`, or with room for m of each group, of
// which `counts` may say how many count.
struct GroupedForm {
  bool offsets = false, counts = false;
  auto fields() const { return std::tuple(labelled("offsets", offsets), labelled("counts", counts)); }
};

// A tile of rows of one group.
struct GroupedTile {
  lang::Expr number;      // among the tiles of all groups
  lang::Expr group, row;  // the first row, of those of the group
  lang::Range rows;       // all of these
  bool divided;

  // The group's window of a tensor of rows; rows are its dimension `axis`.
  lang::Tensor of(const lang::Tensor& all_groups, int axis = 0) const;
  // The same with other rows behind those of the group, for operands: no limit cuts their tiles, and what is
  // behind it is multiplied for nothing. The tile begins at `first_read()` there.
  lang::Tensor read_of(const lang::Tensor& all_groups) const;
  lang::Expr first_read() const;
};

class GroupedWalk {
 public:
  GroupedWalk(const GroupedForm& form, const lang::Dim& m, const lang::Dim& groups)
      : form_(form), m_(m), groups_(groups) {}

  // Extents of a tensor that has `own` of every group.
  lang::Extents extents(lang::Extents own) const;
  // Declares the inputs offsets and counts, where the form has them, and the scalar max_rows of the former,
  // and divides the rows of groups into tiles of `tile_rows`. To be called once, before the others.
  void divide(int tile_rows);
  // Tiles of all groups, at most.
  lang::Expr tiles() const;
  // A grid of `columns` and of all tiles. `blocks` share a processor, 0: by the compiler.
  using Body = std::function<void(const lang::Expr& column, const GroupedTile& tile)>;
  void each(const lang::Expr& columns, const Body& body, int blocks = 0) const;

 private:
  GroupedForm form_;
  const lang::Dim &m_, &groups_;
  int tile_rows_ = 0;
  std::optional<GroupTiles> divided_;
  std::optional<lang::Tensor> counts_;
};

}  // namespace tegula::ops

// Which copies into shared tiles the copy engine can do.
#pragma once
#include <optional>

#include "ir/stmt.hpp"
#include "passes/planned.hpp"

namespace tegula::passes {

// One transfer for every `columns` columns of the tile.
struct TensorCopy {
  std::vector<int> box;      // elements along each dimension of the tensor, the last one left out
  int columns = 0;           // of a transfer
  int first_row = 0;         // of the tile that is filled
  bool is_swizzled = false;  // the tile is cut into blocks of that many columns
  // Some of the view's limits may cut the tile: then the elements beyond are zeros, which the engine only
  // writes outside the tensor. Or the box may begin where none can.
  bool is_clipped = false;
  Reason clipped;           // which of the two
  bool needs_zeros = true;  // beyond the limits: else what stands there in the tensor may come along
  // A tile that is partly outside the tensor comes as a box of the rows that are not: the engine fills others
  // with zeros more slowly than it brings rows.
  bool ends_inside = false;
  // The dimension of which each block of a pair brings one half, to both; -1: each block brings all for
  // itself.
  int halved = -1;
};

// The rows of a shared tile that the view shows, in the order of the tile however it is reshaped, its columns
// all shown; nothing for other views.
struct TileRows {
  std::int64_t first = 0, count = 0;
};
std::optional<TileRows> rows_of(const ir::View& tile);

inline constexpr std::int64_t most_in_box = 256;  // elements along a dimension
inline constexpr int most_dims = 5;               // of a tensor that the copy engine takes
// Elements of the innermost dimension, at multiples of which boxes can begin.
int aligned_elements(const ir::View& tensor);
// Whether every box of the view begins there.
bool begins_aligned(const ir::View& tensor);

// Some limit inside of the tensor may be inside of the tile, too.
bool limits_may_cut(const ir::Copy& copy);

// Where the addresses and strides of a call allow it; nothing where they never do. `swizzled` says that
// tensor cores read the tile.
Planned<TensorCopy> plan_copy(const ir::Copy& copy, bool swizzled);

}  // namespace tegula::passes

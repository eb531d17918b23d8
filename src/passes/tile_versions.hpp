// The contents of a tile in a body, from one statement that replaces all of them to the next.
#pragma once
#include <optional>

#include "ir/stmt.hpp"

namespace tegula::passes {

// What the elements of a tile are copied from: that at `index` from `from`.
struct Source {
  std::vector<ir::VariablePtr> index;
  ir::Access from;
};

// The contents of a tile from one statement that replaces all of them to the next.
struct Version {
  std::size_t defined = 0;
  std::optional<Source> source;
  bool by_loop = false;                      // the statement computes them
  bool opaque = false;                       // others than loops, reductions and copies to tensors touch them
  std::vector<std::size_t> readers, copies;  // loops and reductions; copies to tensors
};

// In order; the first one, which nothing defines, is opaque. `mentions` are the statements of the body that
// mention the tile.
std::vector<Version> versions_of(const ir::Body& body, const ir::BufferPtr& tile,
                                 const std::vector<std::size_t>& mentions);

// Whether elements along the last axis of the view are neighbours along the last dimension of the buffer.
bool is_along_rows(const ir::View& view);

}  // namespace tegula::passes

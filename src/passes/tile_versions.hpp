// The contents of a tile in a body, from one statement that replaces all of them to the next.
#pragma once
#include <optional>

#include "ir/bounds.hpp"
#include "ir/stmt.hpp"

namespace tegula::passes {

// What the elements of a tile are copied from: that at `index` from `from`, or `fill` where `exists` is
// false; without them, 0 where there is no element.
struct Source {
  std::vector<ir::VariablePtr> index;
  ir::Access from;
  ir::Expr exists = nullptr, fill = nullptr;
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
                                 const std::vector<std::size_t>& mentions, const ir::Facts& facts);

// Whether the element at `index` of a window that begins within a tensor exists: its place in the last
// dimension is below a number that is 0 where one of the other places does not exist. Null where they are not
// counted in 32 bits, as lanes are, or end at a slice.
ir::Expr existence(const ir::View& view, const std::vector<ir::Expr>& index, const Loc& at);

// Whether elements along the last axis of the view are neighbours along the last dimension of the buffer.
bool is_along_rows(const ir::View& view);

}  // namespace tegula::passes

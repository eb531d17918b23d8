// Tiles of a step that take the place of others.
//
// A tile that the consumers make in a step, and read for the last time before they first use another one of
// the same shape and type, gives its memory to that one. They meet more often; it pays where a ring has a
// slot more.
#pragma once
#include <vector>

#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// Of a step: `tile` may have the memory of `place`. Any of them may be left out.
struct TileReuse {
  ir::BufferPtr tile, place;
};
// The smallest tiles first.
std::vector<TileReuse> tiles_to_reuse(const Roles& roles);

void reuse_tiles(Roles& roles, const std::vector<TileReuse>& which);

}  // namespace tegula::passes

// Tiles of a step that take the place of others.
//
// A tile that the consumers make in a step, and read for the last time before they first use another one of
// the same shape and type, gives its memory to that one. They meet more often; it pays where a ring has a
// slot more.
#pragma once
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// False: there are no such tiles.
bool reuse_tiles(Roles& roles);

}  // namespace tegula::passes

#include "tests/must_fail/must_fail.hpp"

// A range of a tile must be inside it.
TEGULA_MUST_FAIL(range_outside_tile, "is not inside the extent 4") {
  Shared tile({4, 4}, f32);
  clear(tile.slice(all, range(0, 5)));  // error
}

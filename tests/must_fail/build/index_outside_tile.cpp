#include "tests/must_fail/must_fail.hpp"

// A constant index must be inside the tile.
TEGULA_MUST_FAIL(index_outside_tile, "the index 4 is outside the extent 4") {
  Shared tile({4}, f32);
  tile(4) = 1.0f;  // error
}

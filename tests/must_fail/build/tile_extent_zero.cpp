#include "tests/must_fail/must_fail.hpp"

// A tile has elements.
TEGULA_MUST_FAIL(tile_extent_zero, "a tile extent is 0") {
  Fragment f({4, 0}, f32);  // error
}

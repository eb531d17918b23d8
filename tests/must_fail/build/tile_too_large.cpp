#include "tests/must_fail/must_fail.hpp"

// Tiles are small.
TEGULA_MUST_FAIL(tile_too_large, "a tile of more than 2^26 elements") {
  Fragment f({8192, 16384}, f32);  // error
}

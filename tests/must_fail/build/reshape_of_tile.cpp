#include "tests/must_fail/must_fail.hpp"

// A reshape keeps the number of elements.
TEGULA_MUST_FAIL(reshape_of_tile, "reshape() from 16 to 15 elements") {
  Shared tile({4, 4}, f32);
  clear(tile.reshape({15}));  // error
}

#include "tests/must_fail/must_fail.hpp"

// Two tiles of a copy have one shape.
TEGULA_MUST_FAIL(copy_shapes, "differ") {
  Shared tile({4, 4}, f32);
  Fragment f({4, 8}, f32, 0);
  copy(f, tile);  // error
}

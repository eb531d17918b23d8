#include "tests/must_fail/must_fail.hpp"

// A copy has two sides.
TEGULA_MUST_FAIL(copy_inside_tile, "copy inside one tile") {
  Shared s({8, 8}, f32);
  copy(s, s.T());  // error
}

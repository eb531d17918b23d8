#include "tests/must_fail/must_fail.hpp"

// A part of a tile has no row-major order of its own.
TEGULA_MUST_FAIL(reshape_of_part_of_tile, "reshape() of a slice of a tile") {
  Shared s({8, 8}, f32);
  Shared part = s.slice(range(0, 4)).reshape({32});  // error
}

#include "tests/must_fail/must_fail.hpp"

// A tile belongs to a block.
TEGULA_MUST_FAIL_WHOLE(tile_outside_grid, "must be inside grid") {
  kernel("k", [&] {
    Shared tile({4}, f32);  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// A tile belongs to the whole block.
TEGULA_MUST_FAIL(tile_declared_in_parallel, "cannot be inside parallel()") {
  parallel(4, [&](Index) {
    Shared tile({4}, f32);  // error
  });
}

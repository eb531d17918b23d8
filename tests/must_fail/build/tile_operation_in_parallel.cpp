#include "tests/must_fail/must_fail.hpp"

// A tile operation is the work of the whole block.
TEGULA_MUST_FAIL(tile_operation_in_parallel, "cannot be inside parallel()") {
  Fragment acc({4}, f32);
  parallel(acc, [&](Index) {
    clear(acc);  // error
  });
}

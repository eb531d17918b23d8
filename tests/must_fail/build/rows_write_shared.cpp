#include "tests/must_fail/must_fail.hpp"

// Shared memory has no rows that belong to a warp group.
TEGULA_MUST_FAIL(rows_write_shared, "which is not a fragment, but is inside when_rows()") {
  Shared tile({64, 8}, f32);
  when_rows({scene.block > 1, scene.block > 2}, [&] {
    parallel(tile, [&](Index i, Index j) { tile(i, j) = 1; });  // error
  });
}

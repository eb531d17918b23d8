#include "tests/must_fail/must_fail.hpp"

// The iterations already run at the same time.
TEGULA_MUST_FAIL(nested_parallel, "give one parallel() more extents") {
  Fragment row({4}, f32);
  parallel(row, [&](Index) {
    parallel(row, [&](Index) {});  // error
  });
}

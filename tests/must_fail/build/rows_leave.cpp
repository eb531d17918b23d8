#include "tests/must_fail/must_fail.hpp"

// A block ends as a whole.
TEGULA_MUST_FAIL(rows_leave, "leaves a loop or the block") {
  when_rows({scene.block > 1}, [&] {
    exit_if(scene.block > 2);  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// A variable of the block belongs to all rows.
TEGULA_MUST_FAIL(rows_assign_outside_var, "assigns a Var that was declared outside") {
  Var n = 0;
  when_rows({scene.block > 1}, [&] {
    n = 1;  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// All iterations share the variable.
TEGULA_MUST_FAIL(var_accumulated_in_parallel, "shared by all iterations") {
  Fragment row({4}, f32, 0);
  Var sum = 0.0f;
  parallel(row, [&](Index i) {
    sum += row(i);  // error
  });
}

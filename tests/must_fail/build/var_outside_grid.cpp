#include "tests/must_fail/must_fail.hpp"

// Variables belong to blocks.
TEGULA_MUST_FAIL_WHOLE(var_outside_grid, "a Var must be inside grid") {
  kernel("k", [&] {
    Var n = 0;  // error
  });
}

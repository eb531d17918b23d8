#include "tests/must_fail/must_fail.hpp"

// A kernel without a grid does nothing.
TEGULA_MUST_FAIL_WHOLE(no_grid, "has no grid()") {
  kernel("empty", [&] { input("A", {4}, f32); });  // error
}

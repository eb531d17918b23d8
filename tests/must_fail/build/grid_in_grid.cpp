#include "tests/must_fail/must_fail.hpp"

// Grids run one after the other.
TEGULA_MUST_FAIL(grid_in_grid, "grid() inside grid()") {
  grid(4, [&](Index) {});  // error
}

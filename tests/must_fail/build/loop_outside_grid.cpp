#include "tests/must_fail/must_fail.hpp"

// Loops of the device stand in blocks.
TEGULA_MUST_FAIL_WHOLE(loop_outside_grid, "a loop must be inside grid") {
  kernel("k", [&] {
    serial(4, [&](Index) {});  // error
  });
}

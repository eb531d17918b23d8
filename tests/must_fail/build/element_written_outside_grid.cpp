#include "tests/must_fail/must_fail.hpp"

// Blocks write.
TEGULA_MUST_FAIL_WHOLE(element_written_outside_grid, "an element is written outside grid") {
  kernel("k", [&] {
    Tensor X = output("X", {4}, f32);
    X(0) = 1;  // error
  });
}

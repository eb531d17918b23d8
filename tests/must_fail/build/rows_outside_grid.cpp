#include "tests/must_fail/must_fail.hpp"

// A branch is taken on the device.
TEGULA_MUST_FAIL_WHOLE(rows_outside_grid, "when_rows must be inside grid") {
  kernel("k", [&] {
    Dim n("n");
    Tensor x = output("x", {n}, f32);
    when_rows({n > 3}, [&] {});  // error
    grid(n, [&](Index i) { x(i) = 0; });
  });
}

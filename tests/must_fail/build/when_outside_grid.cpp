#include "tests/must_fail/must_fail.hpp"

// What is known at the launch is required, not branched on.
TEGULA_MUST_FAIL_WHOLE(when_outside_grid, "when() must be inside grid") {
  kernel("k", [&] {
    Dim N("N");
    when(N > 4, [&] {});  // error
  });
}

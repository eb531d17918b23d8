#include "tests/must_fail/must_fail.hpp"

// Loops of the device stand in blocks.
TEGULA_MUST_FAIL_WHOLE(while_outside_grid, "a loop must be inside grid") {
  kernel("k", [&] {
    Dim N("N");
    loop_while([&] { return N > 4; }, [&] {});  // error
  });
}

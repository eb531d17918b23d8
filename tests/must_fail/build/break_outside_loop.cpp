#include "tests/must_fail/must_fail.hpp"

// There is no loop to leave.
TEGULA_MUST_FAIL(break_outside_loop, "break_if() leaves") {
  break_if(scene.block > 0);  // error
}

#include "tests/must_fail/must_fail.hpp"

// A block ends as a whole.
TEGULA_MUST_FAIL(exit_in_group, "cannot be inside each_group()") {
  each_group(2, Group::warp, [&](Index g) {
    exit_if(g > 0);  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// Instances run at the same time.
TEGULA_MUST_FAIL(group_assigns_outside_var, "shared by all iterations") {
  Var n = 0;
  each_group(2, Group::warp, [&](Index g) {
    n = g;  // error
  });
}

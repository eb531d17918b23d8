#include "tests/must_fail/must_fail.hpp"

// Warps are not nested.
TEGULA_MUST_FAIL(groups_in_groups, "each_group() inside each_group()") {
  each_group(2, Group::warpgroup, [&](Index) {
    each_group(2, Group::warp, [&](Index) {});  // error
  });
}

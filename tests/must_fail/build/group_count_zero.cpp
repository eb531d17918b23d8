#include "tests/must_fail/must_fail.hpp"

// There is at least one group.
TEGULA_MUST_FAIL(group_count_zero, "each_group(): the count is 0") {
  each_group(0, Group::warp, [&](Index) {});  // error
}

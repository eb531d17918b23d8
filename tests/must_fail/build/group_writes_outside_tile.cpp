#include "tests/must_fail/must_fail.hpp"

// Instances run at the same time.
TEGULA_MUST_FAIL(group_writes_outside_tile, "declared outside each_group()") {
  Shared tile({4}, f32);
  each_group(2, Group::warp, [&](Index) {
    clear(tile);  // error
  });
}

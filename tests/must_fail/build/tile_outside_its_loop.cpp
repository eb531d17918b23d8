#include "tests/must_fail/must_fail.hpp"

// Every iteration has its own tile.
TEGULA_MUST_FAIL(tile_outside_its_loop, "used outside the loop or branch") {
  std::optional<Fragment> kept;
  serial(4, [&](Index) { kept.emplace(Fragment({4}, f32, 0)); });
  clear(*kept);  // error
}

#include "tests/must_fail/must_fail.hpp"

// A condition is evaluated by every warp.
TEGULA_MUST_FAIL(tile_read_in_while_condition, "cannot be in the condition of loop_while()") {
  loop_while(
      [&] {
        Fragment f({4}, f32, 0);  // error
        return scene.block > 0;
      },
      [&] {});
}

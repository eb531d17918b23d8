#include "tests/must_fail/must_fail.hpp"

// The place of every offset is the user's.
TEGULA_MUST_FAIL(last_offset, "an offset must be an integer, got f32") {
  Fragment acc({4, 4}, f32);
  copy(acc, scene.C.at(0, 0.5f));  // error
}

#include "tests/must_fail/must_fail.hpp"

// The place of every index is the user's.
TEGULA_MUST_FAIL(second_index, "an index must be an integer, got f32") {
  scene.C(0, 0.5f) = 0;  // error
}

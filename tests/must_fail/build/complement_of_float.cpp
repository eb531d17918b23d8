#include "tests/must_fail/must_fail.hpp"

// Floats have no bits to turn.
TEGULA_MUST_FAIL(complement_of_float, "`~` needs an integer, got f32") {
  print("x", ~f32(scene.block));  // error
}

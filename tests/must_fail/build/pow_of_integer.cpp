#include "tests/must_fail/must_fail.hpp"

// Powers are of floats.
TEGULA_MUST_FAIL(pow_of_integer, "pow() needs floating values, got i32; write f32(x)") {
  print("x", pow(scene.block, 3));  // error
}

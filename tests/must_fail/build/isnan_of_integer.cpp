#include "tests/must_fail/must_fail.hpp"

// Integers are numbers.
TEGULA_MUST_FAIL(isnan_of_integer, "isnan() needs a floating value, got i32") {
  print("x", isnan(scene.block));  // error
}

#include "tests/must_fail/must_fail.hpp"

// Conditions are not numbers.
TEGULA_MUST_FAIL(abs_of_boolean, "abs() of a boolean") {
  print("x", abs(scene.block < 3));  // error
}

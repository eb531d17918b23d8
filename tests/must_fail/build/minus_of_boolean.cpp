#include "tests/must_fail/must_fail.hpp"

// Conditions are not numbers.
TEGULA_MUST_FAIL(minus_of_boolean, "`-` of a boolean") {
  print("x", -(scene.block < 3));  // error
}

#include "tests/must_fail/must_fail.hpp"

// A number is not a condition.
TEGULA_MUST_FAIL(select_not_boolean, "select() needs a boolean condition") {
  scene.C(0, 0) = select(scene.N(0), 1.0f, 2.0f);  // error
}

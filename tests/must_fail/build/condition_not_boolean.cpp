#include "tests/must_fail/must_fail.hpp"

// A number is not a condition.
TEGULA_MUST_FAIL(condition_not_boolean, "needs a boolean condition, got i32") {
  when(scene.N(0), [&] {});  // error
}

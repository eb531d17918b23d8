#include "tests/must_fail/must_fail.hpp"

// A requirement is a condition.
TEGULA_MUST_FAIL_WHOLE(requirement_not_boolean, "require() needs a boolean condition, got i32") {
  kernel("k", [&] {
    Dim N("N");
    require(N, "N is there");  // error
  });
}

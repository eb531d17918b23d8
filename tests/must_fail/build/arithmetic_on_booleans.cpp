#include "tests/must_fail/must_fail.hpp"

// Conditions are not numbers.
TEGULA_MUST_FAIL(arithmetic_on_booleans, "on booleans; use && || ! or select()") {
  Expr a = scene.block > 0;
  Expr c = a + a;  // error
}

#include "tests/must_fail/must_fail.hpp"

// Shifts are for integers.
TEGULA_MUST_FAIL(shift_of_float, "`<<` needs integers, got f32") {
  Expr x = scene.C(0, 0);
  Expr y = x << 1;  // error
}

#include "tests/must_fail/must_fail.hpp"

// Bit operations are for integers.
TEGULA_MUST_FAIL(bits_of_float, "`&` needs integers, got f32") {
  Expr x = scene.C(0, 0);
  Expr y = x & x;  // error
}

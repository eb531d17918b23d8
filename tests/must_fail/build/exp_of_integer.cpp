#include "tests/must_fail/must_fail.hpp"

// Elementary functions are for floats.
TEGULA_MUST_FAIL(exp_of_integer, "exp2() needs a floating value, got i32") {
  Expr y = exp2(scene.block);  // error
}

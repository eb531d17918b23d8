#include "tests/must_fail/must_fail.hpp"

// A truth is no number.
TEGULA_MUST_FAIL(boolean_times_float, "`*` mixes f32 and bool; cast the boolean, such as f32(x)") {
  Expr masked = scene.A(0, 0) * (scene.N(0) > 0);  // error
}

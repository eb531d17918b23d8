#include "tests/must_fail/must_fail.hpp"

// An index is an integer.
TEGULA_MUST_FAIL(index_not_integer, "an index must be an integer, got f32") {
  Expr x = scene.C(0, 0);
  scene.C(x, 0) = 1.0f;  // error
}

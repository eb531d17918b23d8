#include "tests/must_fail/must_fail.hpp"

// A bit cast keeps the width.
TEGULA_MUST_FAIL(bitcast_width, "the types must have one width") {
  Expr y = bitcast(scene.C(0, 0), f64);  // error
}

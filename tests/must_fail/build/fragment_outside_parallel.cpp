#include "tests/must_fail/must_fail.hpp"

// No thread has the element for all others.
TEGULA_MUST_FAIL(fragment_outside_parallel, "use them inside parallel()") {
  Fragment row({4}, f32, 0);
  Expr x = row(0);  // error
}

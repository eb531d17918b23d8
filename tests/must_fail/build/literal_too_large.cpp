#include "tests/must_fail/must_fail.hpp"

// A literal must fit the type it takes.
TEGULA_MUST_FAIL(literal_too_large, "does not fit i32") {
  Expr y = scene.block + 3000000000ll;  // error
}

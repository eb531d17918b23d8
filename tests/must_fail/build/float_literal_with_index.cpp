#include "tests/must_fail/must_fail.hpp"

// An index times one half is not an index.
TEGULA_MUST_FAIL(float_literal_with_index, "floating literal with an i32") {
  Var x = scene.block * 0.5f;  // error
}

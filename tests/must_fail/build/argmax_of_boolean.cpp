#include "tests/must_fail/must_fail.hpp"

// No truth is larger than another.
TEGULA_MUST_FAIL(argmax_of_boolean, "reduce_argmax of boolean; use reduce_any or reduce_all") {
  Fragment f({4, 8}, boolean, false);
  Fragment places = reduce_argmax(f);  // error
}

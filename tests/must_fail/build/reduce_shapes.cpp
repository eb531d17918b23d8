#include "tests/must_fail/must_fail.hpp"

// A reduction drops one dimension.
TEGULA_MUST_FAIL(reduce_shapes, "does not fit") {
  Fragment acc({4, 8}, f32, 0), rows({8}, f32, 0);
  reduce_sum(acc, rows);  // error
}

#include "tests/must_fail/must_fail.hpp"

// A reduction drops one dimension.
TEGULA_MUST_FAIL(reduce_shapes, "reduce_sum over dim 1: [4, 8] does not fit [8]; the result is [4]") {
  Fragment acc({4, 8}, f32, 0), rows({8}, f32, 0);
  reduce_sum(acc, rows);  // error
}

#include "tests/must_fail/must_fail.hpp"

// A reduction drops one dimension.
TEGULA_MUST_FAIL(reduce_rank, "the result must have one rank less than [8, 8]: [8]") {
  Shared s({8, 8}, f32);
  Fragment sum({8, 8}, f32, 0);
  reduce_sum(s, sum);  // error
}

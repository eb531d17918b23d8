#include "tests/must_fail/must_fail.hpp"

// The dimension exists.
TEGULA_MUST_FAIL(reduce_dim, "a reduction over dim 2 of a tile of rank 2") {
  Fragment acc({4, 8}, f32, 0);
  Fragment rows = reduce_sum(acc, 2);  // error
}

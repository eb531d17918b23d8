#include "tests/must_fail/must_fail.hpp"

// The dimension exists.
TEGULA_MUST_FAIL(reduce_dim, "of a tile of rank 2; its dims are 0 to 1, and -1 is the last one") {
  Fragment acc({4, 8}, f32, 0);
  Fragment rows = reduce_sum(acc, 2);  // error
}

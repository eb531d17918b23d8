#include "tests/must_fail/must_fail.hpp"

// The dimension exists.
TEGULA_MUST_FAIL(scan_dim,
                 "scan_sum along dim 2 of a tile of rank 2; its dims are 0 to 1, and -1 is the last one") {
  Fragment f({4, 8}, f32, 0);
  Fragment sums = scan_sum(f, {.dim = 2});  // error
}

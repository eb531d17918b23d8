#include "tests/must_fail/must_fail.hpp"

// Sums are of numbers.
TEGULA_MUST_FAIL(scan_of_boolean, "scan_sum of boolean; write select(tile(i), 1, 0) to a tile of i32") {
  Fragment f({4, 8}, boolean, false);
  Fragment sums = scan_sum(f);  // error
}

#include "tests/must_fail/must_fail.hpp"

// A tile of rank 0 has no dimension.
TEGULA_MUST_FAIL(scan_of_a_number, "a tile of rank 0 is one value, which .scalar() reads") {
  Fragment row({8}, f32, 0), sum = reduce_sum(row);
  Fragment sums = scan_sum(sum);  // error
}

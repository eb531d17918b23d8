#include "tests/must_fail/must_fail.hpp"

// Each element has its own start.
TEGULA_MUST_FAIL(scan_starts_shape, "scan_max: the starts are [8]; they have the shape [4, 8] of the tile") {
  Fragment f({4, 8}, f32, 0), starts({8}, boolean, false);
  Fragment sums = scan_max(f, starts);  // error
}

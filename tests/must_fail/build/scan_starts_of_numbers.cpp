#include "tests/must_fail/must_fail.hpp"

// Segments begin where something is true.
TEGULA_MUST_FAIL(scan_starts_of_numbers,
                 "scan_sum: the starts are i32; give a tile of boolean, true where a segment begins") {
  Fragment f({4, 8}, f32, 0), starts({4, 8}, i32, 0);
  Fragment sums = scan_sum(f, starts);  // error
}

#include "tests/must_fail/must_fail.hpp"

// Blocks print.
TEGULA_MUST_FAIL_WHOLE(print_outside_grid, "print() must be inside grid") {
  kernel("k", [&] {
    Dim N("N");
    print("N", N);  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// What is known at the launch is required.
TEGULA_MUST_FAIL_WHOLE(assertion_outside_grid, "assert_that() must be inside grid") {
  kernel("k", [&] {
    Dim N("N");
    assert_that(N > 4, "N is large");  // error
  });
}

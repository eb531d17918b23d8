#include "tests/must_fail/must_fail.hpp"

// The language records into a kernel.
TEGULA_MUST_FAIL_WHOLE(outside_kernel, "no kernel is being built here") {
  Fragment f({4}, f32);  // error
}

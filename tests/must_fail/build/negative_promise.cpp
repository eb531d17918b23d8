#include "tests/must_fail/must_fail.hpp"

// A factor is positive.
TEGULA_MUST_FAIL_WHOLE(negative_promise, "the factor must be positive") {
  kernel("k", [&] {
    Dim N("N");
    N.multiple_of(0);  // error
  });
}

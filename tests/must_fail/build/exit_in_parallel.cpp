#include "tests/must_fail/must_fail.hpp"

// A block ends as a whole.
TEGULA_MUST_FAIL(exit_in_parallel, "cannot be inside parallel()") {
  parallel(4, [&](Index i) {
    exit_if(i > 0);  // error
  });
}

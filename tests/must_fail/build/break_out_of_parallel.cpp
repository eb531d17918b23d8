#include "tests/must_fail/must_fail.hpp"

// Iterations of parallel() have no order in which to stop.
TEGULA_MUST_FAIL(break_out_of_parallel, "break_if() leaves") {
  serial(4, [&](Index) {
    parallel(4, [&](Index i) {
      break_if(i > 0);  // error
    });
  });
}

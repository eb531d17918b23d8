#include "tests/must_fail/must_fail.hpp"

// A reduction reads all of its source.
TEGULA_MUST_FAIL(reduce_into_source, "a reduction into its own source") {
  Fragment f({8, 8}, f32, 0);
  Fragment row = f.slice(0);
  reduce_sum(f, row);  // error
}

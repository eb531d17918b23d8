#include "tests/must_fail/must_fail.hpp"

// A body over a matrix takes two indices.
TEGULA_MUST_FAIL(arity_of_parallel, "with a body of 1 indices") {
  Fragment acc({4, 4}, f32);
  parallel(acc, [&](Index) {});  // error
}

#include "tests/must_fail/must_fail.hpp"

// A body over a matrix takes two indices.
TEGULA_MUST_FAIL(
    arity_of_parallel,
    "of rank 2 with a body of 1 index; the body takes one Index for each dimension, 2 indices here") {
  Fragment acc({4, 4}, f32);
  parallel(acc, [&](Index) {});  // error
}

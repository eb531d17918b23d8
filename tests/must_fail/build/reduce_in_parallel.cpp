#include "tests/must_fail/must_fail.hpp"

// The operation that stands in the wrong place is named.
TEGULA_MUST_FAIL(reduce_in_parallel,
                 "reduce_sum is a tile operation and cannot be inside parallel(); move it out of the loop") {
  Fragment acc({4}, f32, 0);
  parallel(acc, [&](Index i) {
    acc(i) /= reduce_sum(acc).scalar();  // error
  });
}

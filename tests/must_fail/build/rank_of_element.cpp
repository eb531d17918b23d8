#include "tests/must_fail/must_fail.hpp"

// An element takes one index for each dimension.
TEGULA_MUST_FAIL(rank_of_element,
                 "has rank 2 here and is indexed with 1 value; give it one index for each dimension") {
  Fragment acc({4, 4}, f32);
  parallel(acc, [&](Index i, Index) {
    acc(i) = 0;  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// The same by `+=`, whose line it is.
TEGULA_MUST_FAIL(mixed_kinds_added, "mixes f32 and i32") {
  Fragment acc({4}, f32, 0);
  parallel(acc, [&](Index i) {
    acc(i) += i;  // error
  });
}

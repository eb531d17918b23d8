#include "tests/must_fail/must_fail.hpp"

// Blocks write.
TEGULA_MUST_FAIL_WHOLE(atomic_outside_grid, "an atomic must be inside grid") {
  kernel("k", [&] {
    Tensor X = inout("X", {4}, f32);
    atomic_add(X(0), 1);  // error
  });
}

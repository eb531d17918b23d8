#include "tests/must_fail/must_fail.hpp"

// A grid is launched before tensors can be read.
TEGULA_MUST_FAIL_WHOLE(grid_extent_from_tensor, "is read outside grid") {
  kernel("k", [&] {
    Tensor X = input("X", {4}, i32);
    grid(X(0), [&](Index) {});  // error
  });
}

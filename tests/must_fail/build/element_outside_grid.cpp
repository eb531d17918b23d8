#include "tests/must_fail/must_fail.hpp"

// The host does not read tensors.
TEGULA_MUST_FAIL_WHOLE(element_outside_grid, "is read outside grid") {
  kernel("k", [&] {
    Tensor X = input("X", {4}, i32);
    Expr x = X(0);  // error
  });
}

#include "tests/must_fail/must_fail.hpp"

// The signature is known before the work.
TEGULA_MUST_FAIL(tensor_declared_in_grid, "before its grid()") {
  Tensor X = input("X", {4}, f32);  // error
}

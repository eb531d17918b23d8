#include "tests/must_fail/must_fail.hpp"

// A tensor does not say how much of it a block fills.
TEGULA_MUST_FAIL(fill_of_tensor, "fill of a tensor") {
  fill(scene.C.at(0), 1);  // error
}

#include "tests/must_fail/must_fail.hpp"

// Rows are gathered into a tile.
TEGULA_MUST_FAIL(gather_into_tensor, "gather into a tensor") {
  gather(scene.A, scene.N, scene.C.at(0));  // error
}

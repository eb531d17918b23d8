#include "tests/must_fail/must_fail.hpp"

// A row has elements.
TEGULA_MUST_FAIL(gather_into_number, "gather into a tile of rank 0") {
  Shared row({64}, f16);
  Fragment sum({}, f32, 0);
  gather(scene.A, scene.N, sum);  // error
}

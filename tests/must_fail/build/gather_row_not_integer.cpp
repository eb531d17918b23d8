#include "tests/must_fail/must_fail.hpp"

// A row number is an integer.
TEGULA_MUST_FAIL(gather_row_not_integer, "the row of gather() must be an integer") {
  Shared tile({4, 64}, f16);
  gather(scene.A, [&](Index i) { return f32(i); }, tile);  // error
}

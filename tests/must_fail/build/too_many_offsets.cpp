#include "tests/must_fail/must_fail.hpp"

// A window has one offset for each dimension at most.
TEGULA_MUST_FAIL(too_many_offsets, "at() got 3 offsets") {
  Shared tile({64, 64}, f16);
  copy(scene.A.at(0, 0, 0), tile);  // error
}

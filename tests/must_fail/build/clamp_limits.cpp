#include "tests/must_fail/must_fail.hpp"

// The lower limit of a clamp is not above the upper one.
TEGULA_MUST_FAIL(clamp_limits, "clamp() from 5 to 1: the lower limit comes first") {
  scene.C(scene.block * 64, 0) = clamp(scene.A(0, 0), 5, 1);  // error
}

#include "tests/must_fail/must_fail.hpp"

// The lower limit of a clamp is not above the upper one.
TEGULA_MUST_FAIL(clamp_limits, "the lower limit of clamp() is above the upper one") {
  scene.C(scene.block * 64, 0) = clamp(scene.A(0, 0), 5, 1);  // error
}

#include "tests/must_fail/must_fail.hpp"

// Tiles have elements.
TEGULA_MUST_FAIL(reshape_to_nothing, "an extent of reshape() is 0") {
  Shared s({8, 8}, f32);
  Shared other = s.reshape({0, 64});  // error
}

#include "tests/must_fail/must_fail.hpp"

// The host cannot see the contents of tensors.
TEGULA_MUST_FAIL(require_on_device_value, "dims and scalars only") {
  require(scene.N(0) > 0, "positive");  // error
}

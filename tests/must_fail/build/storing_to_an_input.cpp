#include "tests/must_fail/must_fail.hpp"

// An input is not written.
TEGULA_MUST_FAIL(storing_to_an_input, "N is an input") {
  scene.N(0) = 1;  // error
}

#include "tests/must_fail/must_fail.hpp"

// An input is not written.
TEGULA_MUST_FAIL(atomic_on_input, "N is an input") {
  atomic_add(scene.N(0), 1);  // error
}

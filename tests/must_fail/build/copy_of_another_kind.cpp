#include "tests/must_fail/must_fail.hpp"

// A copy does not turn integers into floats.
TEGULA_MUST_FAIL(copy_of_another_kind, "changes the kind") {
  Fragment f({64}, f32);
  copy(scene.N.at(0), f);  // error
}

#include "tests/must_fail/must_fail.hpp"

// An input is not written.
TEGULA_MUST_FAIL(writing_an_input, "A is an input") {
  Fragment acc({64, 64}, f16, 0);
  copy(acc, scene.A.at(scene.block * 64));  // error
}

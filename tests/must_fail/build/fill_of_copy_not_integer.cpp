#include "tests/must_fail/must_fail.hpp"

// What is outside reads as an element does.
TEGULA_MUST_FAIL(fill_of_copy_not_integer, "the fill value must be an integer") {
  Shared s({64}, i32);
  copy(scene.N, s, {.fill = 0.5});  // error
}

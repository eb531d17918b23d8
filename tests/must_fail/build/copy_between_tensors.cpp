#include "tests/must_fail/must_fail.hpp"

// No tile says how much is copied.
TEGULA_MUST_FAIL(copy_between_tensors, "copy through a tile") {
  copy(scene.A.at(0, 0), scene.C.at(0, 0));  // error
}

#include "tests/must_fail/must_fail.hpp"

// A window and its tile have one rank.
TEGULA_MUST_FAIL(rank_of_copy, "use slice() to drop dimensions") {
  Fragment row({64}, f16);
  copy(scene.A.at(scene.block * 64), row);  // error
}
